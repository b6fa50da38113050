#include "daemon/outside/obstacles.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/outside/procfs_text.h"

namespace stackd {
namespace {

// Field 9 of stat; include/linux/sched.h.
constexpr uint64_t kKernelThread = 0x00200000;

bool HasCapability(std::string_view own_status, int capability) {
  return (MaskIn(own_status, "CapEff") >> capability & 1) != 0;
}

std::string Number(int64_t number) { return std::to_string(number); }

// What is looked at to explain a refusal.
struct Look {
  std::string proc, path;
  int32_t pid;
  std::string status, own_status;
  std::string name() const { return "process " + Number(pid); }
};

uint64_t FlagsInStat(const std::string& stat) {
  constexpr int kStateField = 3, kFlagsField = 9;
  size_t at = stat.rfind(')');
  for (int field = kStateField; field <= kFlagsField && at != std::string::npos; field++) at = stat.find(' ', at + 1);
  return at == std::string::npos ? 0 : strtoull(stat.c_str() + at, nullptr, 10);
}

bool HidesProcesses(const std::string& proc) {
  const std::string mounts = ReadProcfsText(proc + "/self/mountinfo");
  const size_t at = mounts.find("hidepid=");
  return at != std::string::npos && mounts[at + strlen("hidepid=")] != '0';
}

// What is no process that has stacks to read; nullopt: it is one.
std::optional<Obstacle> NoSuchProcess(const Look& look) {
  const auto missing = [&](std::string text, std::string way_out) {
    return Obstacle{Obstacle::kNothingIsRead, Code::kNotFound, std::move(text), std::move(way_out)};
  };
  if (look.status.empty()) {
    if (kill(look.pid, 0) == 0 || errno == EPERM) {
      if (HidesProcesses(look.proc)) {
        return missing(look.name() + " is hidden from uid " + Number(geteuid()) + " (/proc is mounted with hidepid)",
                       "run stackctl as the user of the process, or as root");
      }
    }
    return missing("there is no " + look.name() + " here",
                   "a pid is meant as ps shows it where stackctl runs, and a container with a PID namespace of its own "
                   "has other ones (run stackctl in it)");
  }
  const int64_t group = NumberIn(look.status, "Tgid");
  if (group != 0 && group != look.pid) {
    return missing(Number(look.pid) + " is a thread of process " + Number(group), "say --pid " + Number(group));
  }
  if ((FlagsInStat(ReadProcfsText(look.path + "/stat")) & kKernelThread) != 0) {
    return missing(look.name() + " is a thread of the kernel", "its stack is in /proc/" + Number(look.pid) + "/stack");
  }
  const std::string_view state = FieldOfStatus(look.status, "State");
  if (state.starts_with('Z') || state.starts_with('X')) {
    return missing(look.name() + " has ended and its parent has not taken note of it (zombie)",
                   "its threads are gone: look at its parent");
  }
  return std::nullopt;
}

// A program of another machine; nullopt also where the file cannot be read.
std::optional<Obstacle> OtherMachine(const Look& look) {
  const Fd file(open((look.path + "/exe").c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header{};
  if (!file.valid() || pread(file.get(), &header, sizeof(header), 0) != sizeof(header)) return std::nullopt;
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine == EM_X86_64) return std::nullopt;
  const bool is_32_bit = header.e_ident[EI_CLASS] == ELFCLASS32;
  return Obstacle{Obstacle::kNothingIsRead, Code::kFailedPrecondition,
                  look.name() + " is not read: " + (is_32_bit ? "32-bit" : "of another machine"),
                  "stackctl reads 64-bit programs of x86-64; try gdb"};
}

// By the check that the kernel makes for everything below /proc/PID that shows memory: in its order.
Obstacle Refused(const Look& look, int error) {
  Obstacle obstacle;
  const auto because = [&](const std::string& why, const std::string& way_out) {
    obstacle.text = "the memory of " + look.name() + " cannot be read, since " + why;
    obstacle.way_out = way_out;
    return obstacle;
  };
  const Uids uids = UidsIn(look.status);
  const bool may_trace = HasCapability(look.own_status, CAP_SYS_PTRACE);
  const bool is_own = uids.real == geteuid() && uids.effective == geteuid() && uids.saved == geteuid();
  struct stat own_users, its_users;
  const bool both_known = stat((look.proc + "/self/ns/user").c_str(), &own_users) == 0 &&
                          stat((look.path + "/ns/user").c_str(), &its_users) == 0;
  if (both_known && own_users.st_ino != its_users.st_ino && may_trace) {
    return because("it is in another user namespace, which the capabilities of stackctl do not reach",
                   "run stackctl in the user namespace above both (on the host, as root)");
  }
  if (!is_own && !may_trace) {
    return because("it belongs to uid " + Number(uids.effective) + " and stackctl runs as uid " + Number(geteuid()),
                   "run stackctl as that user, or as root");
  }
  if (!is_own && error == EACCES) {
    return because("CAP_SYS_PTRACE alone does not open files of procfs that belong to uid " + Number(uids.effective),
                   "run stackctl as that user, or give it CAP_DAC_READ_SEARCH too");
  }
  const int scope = atoi(ReadProcfsText(look.proc + "/sys/kernel/yama/ptrace_scope").c_str());
  if (scope >= 3) return because("kernel.yama.ptrace_scope is 3, which forbids it to all", "give it an agent");
  struct stat file;
  // All its files but the folder itself belong to root then.
  const bool is_root_s =
      stat((look.path + "/status").c_str(), &file) == 0 && static_cast<int64_t>(file.st_uid) != uids.effective;
  if (is_root_s && !may_trace) {
    return because(
        "it is not dumpable: it has changed its user, has more rights than its caller, or has asked for "
        "that (prctl PR_SET_DUMPABLE)",
        "run stackctl as root");
  }
  if ((MaskIn(look.status, "CapPrm") & ~MaskIn(look.own_status, "CapPrm")) != 0 && !may_trace) {
    return because("it has capabilities that stackctl has not", "run stackctl as root");
  }
  if (scope >= 1 && !may_trace) {
    return because("kernel.yama.ptrace_scope is " + Number(scope) + ", which forbids it without CAP_SYS_PTRACE",
                   "run stackctl as root, or give the process an agent");
  }
  return because(std::string("the kernel says \"") + strerror(error) + "\"",
                 "a security module or a filter of system calls (seccomp) may be in the way: run stackctl as root on the "
                 "host, or give the process an agent");
}

// 0, or why a way of reading is refused: an errno.
int TryToRead(const Look& look) {
  const std::string task = look.path + "/task/" + Number(look.pid);
  for (const std::string& file : {look.path + "/mem", look.path + "/maps", task + "/syscall"}) {
    const Fd opened(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    char byte;
    if (!opened.valid()) return errno;
    // Who may not look at it finds out when reading. Memory has no first byte.
    const bool is_text = !file.ends_with("/mem");
    if (is_text && pread(opened.get(), &byte, sizeof(byte), 0) < 0) return errno;
  }
  return 0;
}

// Why threads that run cannot be stopped to be read.
std::optional<Obstacle> NoStops(const Look& look) {
  const auto obstacle = [](std::string text, std::string way_out) {
    return Obstacle{Obstacle::kNoStops, Code::kPermissionDenied, std::move(text), std::move(way_out)};
  };
  // No process has the number 0: a caller who may use ptrace at all gets ESRCH.
  if (ptrace(PTRACE_DETACH, 0, nullptr, nullptr) != 0 && errno != ESRCH) {
    return obstacle("threads that run are not stopped: ptrace is refused here (" + std::string(strerror(errno)) +
                        ", a filter of system calls)",
                    "allow ptrace in the seccomp profile of stackctl's container");
  }
  if (const int64_t tracer = NumberIn(look.status, "TracerPid"); tracer != 0) {
    const std::string text = ReadProcfsText(look.proc + "/" + Number(tracer) + "/comm");
    const std::string by = text.empty() ? "" : " (" + text.substr(0, text.find('\n')) + ")";
    return obstacle("threads that run are not stopped: process " + Number(tracer) + by + " traces " + look.name(),
                    "those that sleep or are stopped are read all the same");
  }
  const int scope = atoi(ReadProcfsText(look.proc + "/sys/kernel/yama/ptrace_scope").c_str());
  if (scope >= 1 && !HasCapability(look.own_status, CAP_SYS_PTRACE)) {
    return obstacle("threads that run are not stopped: kernel.yama.ptrace_scope is " + Number(scope),
                    "run stackctl as root");
  }
  return std::nullopt;
}

}  // namespace

std::vector<Obstacle> FindObstacles(const std::string& proc, int32_t pid) {
  Look look{.proc = proc, .path = proc + "/" + Number(pid), .pid = pid, .status = {}, .own_status = {}};
  look.status = ReadProcfsText(look.path + "/status");
  look.own_status = ReadProcfsText(proc + "/self/status");
  if (auto obstacle = NoSuchProcess(look)) return {*obstacle};
  if (auto obstacle = OtherMachine(look)) return {*obstacle};
  if (const int error = TryToRead(look); error != 0) {
    if (error == ENOENT || error == ESRCH) {
      return {
          {Obstacle::kNothingIsRead, Code::kNotFound, look.name() + " has just ended", "see whether it was started anew"}};
    }
    return {Refused(look, error)};
  }
  if (auto obstacle = NoStops(look)) return {*obstacle};
  return {};
}

}  // namespace stackd

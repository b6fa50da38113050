#include "client/unregistered_process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "daemon/base/regular_file.h"

namespace stackd {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string ReadLink(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  return {target, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

// Field 22 of `stat`. The name, in parentheses, may hold anything.
uint64_t StartTicks(const std::string& stat) {
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return strtoull(field.c_str(), nullptr, 10);
}

// -1: not known.
int64_t EffectiveUid(const std::string& status) {
  const size_t line = status.find("\nUid:");
  if (line == std::string::npos) return -1;
  std::istringstream fields(status.substr(line + strlen("\nUid:")));
  int64_t real = -1, effective = -1;
  fields >> real >> effective;
  return effective;
}

std::unexpected<Status> Refused(const std::string& proc, int32_t pid, int error) {
  const std::string name = "process " + std::to_string(pid);
  const std::string path = proc + "/" + std::to_string(pid);
  if (access(path.c_str(), F_OK) != 0 || error == ESRCH) {
    return Error(Code::kNotFound, "there is no " + name +
                                      " here: a pid is meant as ps shows it where stackctl runs, and a "
                                      "container with a PID namespace of its own has other ones (run stackctl in it)");
  }
  const std::string cannot = "the memory of " + name + " cannot be read: ";
  const int64_t uid = EffectiveUid(ReadText(path + "/status"));
  if (geteuid() != 0 && uid != static_cast<int64_t>(geteuid())) {
    return Error(Code::kPermissionDenied, cannot + "it belongs to uid " + std::to_string(uid) +
                                              " and stackctl runs as uid " + std::to_string(geteuid()) +
                                              "; run stackctl as that user, or as root");
  }
  const int scope = atoi(ReadText(proc + "/sys/kernel/yama/ptrace_scope").c_str());
  if (scope > 0) {
    return Error(Code::kPermissionDenied,
                 cannot + "kernel.yama.ptrace_scope is " + std::to_string(scope) +
                     (scope >= 3 ? ", which forbids it to everybody; give it an agent"
                                 : ", which forbids it without CAP_SYS_PTRACE; run stackctl as root, or give it an agent"));
  }
  return Error(
      Code::kPermissionDenied,
      cannot + strerror(error) +
          "; it may have capabilities that stackctl has not, have changed its user, or be kept apart by a security "
          "module or a user namespace: run stackctl as root, or give it an agent");
}

}  // namespace

Result<UnregisteredProcess> UnregisteredProcess::Open(const std::string& proc, int32_t pid) {
  UnregisteredProcess process;
  process.pid_ = pid;
  process.path_ = proc + "/" + std::to_string(pid);
  process.folder_ = Fd(open(process.path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!process.folder_.valid()) return Refused(proc, pid, errno);
  process.memory_ = Fd(openat(process.folder_.get(), "mem", O_RDONLY | O_CLOEXEC));
  if (!process.memory_.valid()) return Refused(proc, pid, errno);
  process.maps_ = Fd(openat(process.folder_.get(), "maps", O_RDONLY | O_CLOEXEC));
  if (!process.maps_.valid()) return Refused(proc, pid, errno);
  process.start_ticks_ = StartTicks(ReadText(process.path_ + "/stat"));
  return process;
}

std::string UnregisteredProcess::name() const {
  return "processes/" + std::to_string(pid_) + "-" + std::to_string(start_ticks_);
}

stackd_hello UnregisteredProcess::Hello() const {
  stackd_hello hello{};
  hello.header = {STACKD_MSG_HELLO, sizeof(hello)};
  hello.abi_version = STACKD_ABI_VERSION;
  hello.flags = STACKD_HELLO_HAS_MEM | STACKD_HELLO_HAS_MAPS | STACKD_HELLO_HAS_PROC | STACKD_HELLO_NO_HANDLER;
  // The user who chose this process may read all of it.
  hello.share = STACKD_SHARE_MEMORY;
  hello.pid = pid_;
  hello.uid = static_cast<int32_t>(EffectiveUid(ReadText(path_ + "/status")));
  hello.start_ticks = start_ticks_;
  // The name of stackctl's host, which mostly is that of the process.
  gethostname(hello.hostname, sizeof(hello.hostname) - 1);
  // Up to its first NUL.
  ReadText(path_ + "/cmdline").copy(hello.argv0, sizeof(hello.argv0) - 1);
  ReadLink(path_ + "/exe").copy(hello.exe, sizeof(hello.exe) - 1);
  return hello;
}

Fd UnregisteredProcess::OpenMapped(const std::string& path) const {
  const std::string executable = path_ + "/exe";
  if (path == "/proc/self/exe" || path == ReadLink(executable)) return OpenRegularFile(executable, /*follow_link=*/true);
  // As the process sees its mounts. The daemon compares what comes with the memory of the process.
  return OpenRegularFile(path_ + "/root" + path, /*follow_link=*/false);
}

}  // namespace stackd

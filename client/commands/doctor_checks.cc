#include "client/commands/doctor_checks.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "daemon/config/version.h"
#include "stackd/ring_abi.h"
#include "stackd/wire.h"

namespace stackd {
namespace {

constexpr char kAgent[] = "libstackd_agent.so";
constexpr rlim_t kFewSignals = 1024;

Finding Good(std::string text) { return {Finding::kGood, std::move(text), {}}; }
Finding Remark(std::string text, std::string way_out = {}) {
  return {Finding::kRemark, std::move(text), std::move(way_out)};
}
Finding Bad(std::string text, std::string way_out) { return {Finding::kBad, std::move(text), std::move(way_out)}; }

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return std::nullopt;
  return text.str();
}

std::string Mode(mode_t mode) {
  char text[8];
  snprintf(text, sizeof(text), "%04o", mode & 07777);
  return text;
}

// Value of NAME=value in the NUL-separated `environ`.
std::optional<std::string> Variable(std::string_view environ, const std::string& name) {
  for (size_t begin = 0; begin < environ.size();) {
    size_t end = std::min(environ.find('\0', begin), environ.size());
    std::string_view entry = environ.substr(begin, end - begin);
    if (entry.starts_with(name + "=")) return std::string(entry.substr(name.size() + 1));
    begin = end + 1;
  }
  return std::nullopt;
}

Finding CheckSocket(const std::string& path, const std::string& what, int access_mode) {
  struct stat file;
  if (stat(path.c_str(), &file) != 0) {
    return Bad(path + " (" + what + "): " + strerror(errno),
               "start stackd with this folder: stackd --dir " + path.substr(0, path.rfind('/')));
  }
  if (!S_ISSOCK(file.st_mode)) return Bad(path + " is not a socket", "remove it and start stackd again");
  if (access(path.c_str(), access_mode) != 0) {
    return Bad(path + " (" + what + ") has mode " + Mode(file.st_mode) + " and belongs to uid " +
                   std::to_string(file.st_uid) + ": " + strerror(errno),
               "run stackctl as that user (or as root)");
  }
  return Good(path + " (" + what + ") is there, mode " + Mode(file.st_mode));
}

std::vector<Finding> CheckEnvironment(const std::string& environ, const std::string& dir) {
  std::vector<Finding> findings;
  if (Variable(environ, "STACKD_DISABLE") == "1") {
    findings.push_back(Bad("STACKD_DISABLE=1 is set: the agent does nothing", "start the process without it"));
  }
  std::string its_dir = Variable(environ, "STACKD_DIR").value_or("");
  if (its_dir.empty()) its_dir = "/run/stackd";
  if (its_dir != dir) {
    findings.push_back(Bad("its STACKD_DIR is " + its_dir + ", not " + dir,
                           "start it with STACKD_DIR=" + dir + ", or ask the other daemon with --address unix:" + its_dir +
                               "/api.sock (a container may see one folder under two names)"));
  }
  return findings;
}

bool IsAloneIn(const std::string& folder, uid_t uid) {
  struct stat status;
  return stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == uid &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Whether the agent takes the listener for the daemon (agent/helper/listener.h).
std::optional<Finding> CheckListener(const std::string& environ, const std::string& status, const std::string& dir) {
  const std::string expected_uid = Variable(environ, "STACKD_DAEMON_UID").value_or("");
  const std::string path = dir + "/" + STACKD_SOCKET_NAME;
  struct stat socket;
  if (expected_uid == "any" || stat(path.c_str(), &socket) != 0) return std::nullopt;
  const std::string uid = std::to_string(socket.st_uid);
  const std::string belongs = path + " belongs to uid " + uid;
  if (!expected_uid.empty()) {
    if (expected_uid == uid) return std::nullopt;
    return Bad("its STACKD_DAEMON_UID is " + expected_uid + ", but " + belongs,
               "run stackd as that user, or start the process with the uid of stackd");
  }
  // The second number of four is the effective one.
  const size_t at = status.find("\nUid:\t");
  const size_t effective = at == std::string::npos ? at : status.find('\t', at + strlen("\nUid:\t"));
  const bool is_own = effective != std::string::npos && strtoul(status.c_str() + effective, nullptr, 10) == socket.st_uid;
  const bool given_by_root =
      IsAloneIn(dir, socket.st_uid) && IsAloneIn(std::filesystem::path(dir).parent_path().string(), 0);
  if (socket.st_uid == 0 || is_own || given_by_root) return std::nullopt;
  return Bad(belongs + ", which is neither root nor the user of the process, and root did not give " + dir +
                 " to that user alone: the agent hands it nothing",
             "start the process with STACKD_DAEMON_UID=" + uid);
}

Finding WhyNotLoaded(const std::string& maps, const std::optional<std::string>& environ) {
  std::string preload = environ ? Variable(*environ, "LD_PRELOAD").value_or("") : "";
  bool is_static = maps.find("ld-linux") == std::string::npos && maps.find("ld-musl") == std::string::npos &&
                   maps.find("libc.so") == std::string::npos;
  std::string text = std::string(kAgent) + " is not loaded";
  if (is_static) {
    return Bad(
        text + ": the program is linked statically, so LD_PRELOAD has no effect",
        "link the agent into it and call stackd_install(); what a Go program does, stackctl dump --pid shows without");
  }
  if (preload.find(kAgent) == std::string::npos) {
    return Bad(text + ", and LD_PRELOAD does not name it",
               std::string("start the process with LD_PRELOAD=/path/of/") + kAgent);
  }
  return Bad(text + " though LD_PRELOAD=" + preload + " names it",
             "see whether that file is there and readable for the process, and whether the program is setuid");
}

bool MaskHolds(const std::string& status, const std::string& name, int signal_number) {
  size_t at = status.find(name + ":");
  if (at == std::string::npos) return false;
  uint64_t mask = strtoull(status.c_str() + at + name.size() + 1, nullptr, 16);
  return (mask >> (signal_number - 1)) & 1;
}

Finding CheckSignal(const std::string& status, const std::optional<std::string>& environ) {
  int signal_number = 34;
  if (environ) signal_number = atoi(Variable(*environ, "STACKD_SIGNAL").value_or("34").c_str());
  if (signal_number < 1 || signal_number > 64)
    return Bad("its STACKD_SIGNAL is not a signal", "set it to a number from 34 to 64");
  std::string name = "signal " + std::to_string(signal_number);
  if (!MaskHolds(status, "SigCgt", signal_number)) {
    return Bad("nothing handles " + name + ": the agent was not installed, or something took the signal from it",
               "choose another with STACKD_SIGNAL=35");
  }
  if (MaskHolds(status, "SigBlk", signal_number)) {
    return Remark("the main thread blocks " + name +
                  ": its stack is taken by another thread of the process, while it sleeps");
  }
  return Good("the agent handles " + name);
}

std::optional<Finding> CheckPendingLimit(const std::string& limits) {
  constexpr char kName[] = "Max pending signals";
  size_t at = limits.find(kName);
  if (at == std::string::npos) return std::nullopt;
  uint64_t soft = strtoull(limits.c_str() + at + sizeof(kName) - 1, nullptr, 10);
  if (soft == 0 || soft >= kFewSignals) return std::nullopt;
  return Remark("at most " + std::to_string(soft) + " signals may be queued for its user (RLIMIT_SIGPENDING)",
                "dumps of more threads take longer; raise it with ulimit -i");
}

}  // namespace

std::vector<Finding> CheckDir(const std::string& dir) {
  struct stat folder;
  if (stat(dir.c_str(), &folder) != 0) {
    return {Bad("the folder " + dir + ": " + strerror(errno),
                "start stackd (it makes the folder), or say where it is with STACKD_DIR")};
  }
  if (!S_ISDIR(folder.st_mode)) return {Bad(dir + " is not a folder", "say where stackd is with STACKD_DIR")};
  std::vector<Finding> findings;
  if (access(dir.c_str(), X_OK) != 0) {
    return {Bad(
        "the folder " + dir + " has mode " + Mode(folder.st_mode) + " and is closed to uid " + std::to_string(geteuid()),
        "chmod o+x " + dir)};
  }
  findings.push_back(Good("the folder " + dir + " is there, mode " + Mode(folder.st_mode)));
  if ((folder.st_mode & S_IXOTH) == 0) {
    findings.push_back(Remark("only uid " + std::to_string(folder.st_uid) + " and its group can enter " + dir,
                              "processes of other users need chmod o+x " + dir));
  }
  findings.push_back(CheckSocket(dir + "/" + STACKD_SOCKET_NAME, "for agents", F_OK));
  findings.push_back(CheckSocket(dir + "/api.sock", "for stackctl", W_OK));
  return findings;
}

std::vector<Finding> CheckDaemon(const v1::Daemon& daemon) {
  std::vector<Finding> findings;
  findings.push_back(Good("stackd " + daemon.version() + " answers: " + std::to_string(daemon.process_count()) +
                          " processes, " + std::to_string(daemon.dump_count()) + " dumps"));
  if (daemon.version() != kVersion) {
    findings.push_back(Remark(std::string("stackctl is ") + kVersion, "install the same version of both"));
  }
  if (daemon.abi_version() != STACKD_ABI_VERSION) {
    findings.push_back(Remark("the daemon speaks agent ABI " + std::to_string(daemon.abi_version()) +
                              ", this stackctl knows " + std::to_string(STACKD_ABI_VERSION)));
  }
  for (const std::string& problem : daemon.problems()) findings.push_back(Bad(problem, ""));
  for (const char* counter : {"agents_rejected", "dumps_unstored", "symbolizer_restarts"}) {
    auto entry = daemon.counters().find(counter);
    if (entry != daemon.counters().end() && entry->second > 0) {
      findings.push_back(
          Remark(std::string(counter) + ": " + std::to_string(entry->second) + " since start", "see the daemon's log"));
    }
  }
  return findings;
}

std::vector<Finding> CheckProcesses(const std::vector<v1::Process>& processes) {
  std::vector<Finding> findings;
  if (processes.empty()) {
    findings.push_back(Remark("no process is connected", std::string("start one with LD_PRELOAD=/path/to/") + kAgent +
                                                             "; stackctl doctor PID looks at one"));
  }
  for (const v1::Process& process : processes) {
    for (const std::string& limit : process.limits()) {
      findings.push_back(Remark(process.display_name() + " (pid " + std::to_string(process.pid()) + "): " + limit));
    }
  }
  return findings;
}

std::vector<Finding> CheckKernel() {
  std::vector<Finding> findings;
  rlimit pending;
  if (getrlimit(RLIMIT_SIGPENDING, &pending) == 0 && pending.rlim_cur < kFewSignals) {
    findings.push_back(
        Remark("at most " + std::to_string(pending.rlim_cur) + " signals may be queued for this user (RLIMIT_SIGPENDING)",
               "dumps of processes with more threads take longer; raise it with ulimit -i"));
  }
  if (auto scope = ReadFile("/proc/sys/kernel/yama/ptrace_scope"); scope && atoi(scope->c_str()) > 0) {
    findings.push_back(Good("kernel.yama.ptrace_scope is " + std::to_string(atoi(scope->c_str())) +
                            ", which is no obstacle: stackd does not ptrace"));
  }
  return findings;
}

std::vector<Finding> CheckProcess(const std::string& proc, int pid, const std::string& dir) {
  const std::string base = proc + "/" + std::to_string(pid);
  struct stat folder;
  if (stat(base.c_str(), &folder) != 0) {
    return {Bad("there is no process " + std::to_string(pid) + " here",
                "a pid is meant as this machine or container sees it: look with ps")};
  }
  auto maps = ReadFile(base + "/maps");
  auto environ = ReadFile(base + "/environ");
  auto status = ReadFile(base + "/status");
  std::vector<Finding> findings;
  if (!maps || maps->empty()) {
    findings.push_back(Remark(base + "/maps cannot be read: the process belongs to uid " + std::to_string(folder.st_uid),
                              "run stackctl doctor as that user"));
    return findings;
  }
  if (maps->find(kAgent) == std::string::npos) {
    findings.push_back(WhyNotLoaded(*maps, environ));
    return findings;
  }
  findings.push_back(Good(std::string(kAgent) + " is loaded"));
  if (environ) {
    for (Finding& finding : CheckEnvironment(*environ, dir)) findings.push_back(std::move(finding));
  }
  if (environ && status) {
    if (auto finding = CheckListener(*environ, *status, dir)) findings.push_back(*finding);
  }
  if (status) findings.push_back(CheckSignal(*status, environ));
  if (auto limits = ReadFile(base + "/limits")) {
    if (auto finding = CheckPendingLimit(*limits)) findings.push_back(*finding);
  }
  return findings;
}

}  // namespace stackd

#include "client/commands/doctor_checks.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "client/commands/finding.h"
#include "daemon/config/version.h"
#include "stackd/ring_abi.h"
#include "stackd/wire.h"

namespace stackd {
namespace {

constexpr char kAgent[] = "libstackd_agent.so";

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

namespace {

// "4 share all of their memory, 2 code and read-only data (STACKD_SHARE=names)"; empty if no agent says.
std::string SharesInWords(const std::vector<v1::Process>& processes) {
  constexpr std::pair<v1::Process::Share, const char*> kLevels[] = {
      {v1::Process::MEMORY, "share all of their memory"},
      {v1::Process::NAMES, "code and read-only data (STACKD_SHARE=names)"},
      {v1::Process::STACKS, "none of it (STACKD_SHARE=stacks)"},
  };
  std::string words;
  for (const auto& [share, what] : kLevels) {
    const auto count = std::ranges::count(processes, share, &v1::Process::share);
    if (count > 0) words += (words.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  }
  return words;
}

}  // namespace

std::vector<Finding> CheckProcesses(const std::vector<v1::Process>& processes) {
  std::vector<Finding> findings;
  if (processes.empty()) {
    findings.push_back(Remark("no process is connected", std::string("start one with LD_PRELOAD=/path/to/") + kAgent +
                                                             "; stackctl doctor PID looks at one"));
  }
  if (const std::string shares = SharesInWords(processes); !shares.empty()) {
    findings.push_back(Good("of the processes " + shares));
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
  if (getrlimit(RLIMIT_SIGPENDING, &pending) == 0 && pending.rlim_cur < kFewPendingSignals) {
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

}  // namespace stackd

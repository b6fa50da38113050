#include "client/commands/process_checks.h"

#include <elf.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "daemon/outside/obstacles.h"
#include "stackd/wire.h"

namespace stackd {
namespace {

constexpr char kAgent[] = "libstackd_agent.so";
constexpr int kFirstSignal = 34, kLastSignal = 64;

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

// The numbers behind "NAME:" in the text of /proc/PID/status.
std::vector<uint64_t> Numbers(const std::string& status, const std::string& name, int base = 10) {
  std::vector<uint64_t> numbers;
  const size_t at = ("\n" + status).find("\n" + name + ":");
  if (at == std::string::npos) return numbers;
  const std::string line = status.substr(at + name.size() + 1, status.find('\n', at) - at - name.size() - 1);
  const char* next = line.c_str();
  for (char* end = nullptr;; next = end) {
    const uint64_t number = strtoull(next, &end, base);
    if (end == next) return numbers;
    numbers.push_back(number);
  }
}

// Who the process is to a file's permissions.
struct Credentials {
  uint64_t uid;
  std::set<uint64_t> gids;
  bool passes_by;  // with a capability
};

std::optional<Credentials> CredentialsIn(const std::string& status) {
  constexpr uint64_t kDacOverride = 1 << 1, kDacReadSearch = 1 << 2;
  const std::vector<uint64_t> uids = Numbers(status, "Uid"), gids = Numbers(status, "Gid");
  // Real, effective, saved, and that for files.
  if (uids.size() != 4 || gids.size() != 4) return std::nullopt;
  Credentials result{uids[3], {gids[3]}, false};
  for (uint64_t gid : Numbers(status, "Groups")) result.gids.insert(gid);
  const std::vector<uint64_t> capabilities = Numbers(status, "CapEff", 16);
  result.passes_by = !capabilities.empty() && (capabilities[0] & (kDacOverride | kDacReadSearch)) != 0;
  return result;
}

// `right`: S_IXOTH or S_IWOTH.
bool May(const Credentials& process, const struct stat& file, mode_t right) {
  if (process.passes_by) return true;
  if (file.st_uid == process.uid) return (file.st_mode & (right << 6)) != 0;
  if (process.gids.contains(file.st_gid)) return (file.st_mode & (right << 3)) != 0;
  return (file.st_mode & right) != 0;
}

// Whether the process may connect to the socket in `dir`, which `prefix` shows as the process does.
std::optional<Finding> CheckWay(const std::string& prefix, const std::string& dir, const Credentials& process) {
  const std::string whose = " and is closed to uid " + std::to_string(process.uid) + " of the process";
  std::filesystem::path folder;
  struct stat file;
  for (const std::filesystem::path& part : std::filesystem::path(dir)) {
    folder /= part;
    if (stat((prefix + folder.string()).c_str(), &file) != 0 || May(process, file, S_IXOTH)) continue;
    return Bad("the folder " + folder.string() + " has mode " + Mode(file.st_mode) + whose, "chmod o+x " + folder.string());
  }
  const std::string socket = dir + "/" + STACKD_SOCKET_NAME;
  if (stat((prefix + socket).c_str(), &file) != 0 || !S_ISSOCK(file.st_mode) || May(process, file, S_IWOTH)) {
    return std::nullopt;
  }
  return Bad(socket + " has mode " + Mode(file.st_mode) + whose, "restart stackd, which opens it to all users");
}

// Whether the process sees the daemon's socket of `dir` in its own folder. `root`: its root folder; "" if that cannot be
// seen.
std::optional<Finding> CheckFolder(const std::string& root, const std::string& its_dir, const std::string& dir) {
  const std::string socket = std::string("/") + STACKD_SOCKET_NAME;
  struct stat here, there;
  const bool is_here = stat((dir + socket).c_str(), &here) == 0;
  const bool is_there = !root.empty() && stat((root + its_dir + socket).c_str(), &there) == 0;
  // A container may see one folder under another name.
  const bool is_same = is_here && is_there && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
  if (is_same) return std::nullopt;
  if (its_dir != dir) {
    return Bad("its STACKD_DIR is " + its_dir + ", not " + dir,
               "start it with STACKD_DIR=" + dir + ", or ask the other daemon with --address unix:" + its_dir +
                   "/api.sock (a container may see one folder under two names)");
  }
  if (root.empty() || !is_here) return std::nullopt;
  return Bad(dir + socket + (is_there ? " is another file" : " is not there") +
                 " in the mount namespace of the process (a container, or chroot)",
             "mount the folder of stackd there too");
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
  const std::vector<uint64_t> uids = Numbers(status, "Uid");
  const bool is_own = uids.size() == 4 && uids[1] == socket.st_uid;
  // Root of the host is shown so where a user namespace does not map it.
  constexpr uid_t kUnmapped = 65534;
  const std::string above = std::filesystem::path(dir).parent_path().string();
  const bool given_by_root = IsAloneIn(dir, socket.st_uid) && (IsAloneIn(above, 0) || IsAloneIn(above, kUnmapped));
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
  const std::string chosen = environ ? Variable(*environ, "STACKD_SIGNAL").value_or("") : "";
  const int signal_number = chosen.empty() ? kFirstSignal : atoi(chosen.c_str());
  if (signal_number < kFirstSignal || signal_number > kLastSignal) {
    return Bad("its STACKD_SIGNAL is " + chosen + ", which is not from 34 to 64: the agent is switched off",
               "set it to a number from 34 to 64, or leave it out");
  }
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
  if (soft == 0 || soft >= kFewPendingSignals) return std::nullopt;
  return Remark("at most " + std::to_string(soft) + " signals may be queued for its user (RLIMIT_SIGPENDING)",
                "dumps of more threads take longer; raise it with ulimit -i");
}

// Whether the kernel told the loader that the program has more rights than its caller.
bool IsSecure(const std::string& auxv) {
  Elf64_auxv_t entry;
  for (size_t at = 0; at + sizeof(entry) <= auxv.size(); at += sizeof(entry)) {
    memcpy(&entry, auxv.data() + at, sizeof(entry));
    if (entry.a_type == AT_SECURE) return entry.a_un.a_val != 0;
  }
  return false;
}

Finding CheckShare(const std::string& chosen) {
  if (chosen == "stacks") {
    return Good("STACKD_SHARE=stacks: the daemon reads none of its memory; what its heap alone tells is missing in dumps");
  }
  if (chosen == "names") {
    return Good(
        "STACKD_SHARE=names: of its memory the daemon reads code and read-only data; what its heap alone tells is "
        "missing in dumps");
  }
  if (chosen.empty() || chosen == "memory") {
    return Good("the daemon may read all of its memory (STACKD_SHARE=stacks or names: less)");
  }
  return Bad("its STACKD_SHARE is " + chosen + ", which is none of stacks, names and memory: the agent is switched off",
             "set it to one of these, or leave it out");
}

// The link names a program that was replaced meanwhile "stackd (deleted)".
bool IsStackd(const std::string& base) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink(base + "/exe", error).filename().string();
  return program == "stackd" || program == "stackd (deleted)";
}

std::vector<Finding> CheckEnvironment(const std::string& base, const std::string& environ, const std::string& status,
                                      const std::string& dir) {
  std::vector<Finding> findings;
  if (Variable(environ, "STACKD_DISABLE") == "1") {
    findings.push_back(Bad("STACKD_DISABLE=1 is set: the agent does nothing", "start the process without it"));
  }
  findings.push_back(CheckShare(Variable(environ, "STACKD_SHARE").value_or("")));
  std::string its_dir = Variable(environ, "STACKD_DIR").value_or("");
  if (its_dir.empty()) its_dir = "/run/stackd";
  const std::string folder = base + "/root";
  const std::string root = std::filesystem::exists(std::filesystem::status(folder + "/")) ? folder : "";
  if (auto finding = CheckFolder(root, its_dir, dir)) findings.push_back(*finding);
  if (auto finding = CheckListener(environ, status, dir)) findings.push_back(*finding);
  const std::optional<Credentials> process = CredentialsIn(status);
  if (process) {
    if (auto finding = CheckWay(root, its_dir, *process)) findings.push_back(*finding);
  }
  return findings;
}

// The field with this number in /proc/PID/stat; those before the last ')' may hold anything.
std::string FieldOf(const std::string& stat, int number) {
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string field;
  for (int i = 3; i <= number && fields >> field; i++) continue;
  return field;
}

}  // namespace

const v1::Process* FindConnected(const std::string& proc, int pid, const std::vector<v1::Process>& processes) {
  const std::string base = proc + "/" + std::to_string(pid);
  const auto status = ReadFile(base + "/status"), stat = ReadFile(base + "/stat");
  std::vector<uint64_t> pids;
  if (status) pids = Numbers(*status, "NSpid");
  const uint64_t own_pid = pids.empty() ? static_cast<uint64_t>(pid) : pids.back();
  const std::string start = stat ? FieldOf(*stat, 22) : "";
  const std::string name = "processes/" + std::to_string(own_pid) + "-" + start;
  const auto found = std::ranges::find_if(processes, [&](const v1::Process& process) {
    // Without procfs the number is all there is to go by.
    if (start.empty()) return process.pid() == pid;
    // A third number tells processes of several namespaces apart.
    return process.name() == name || process.name().starts_with(name + "-");
  });
  return found == processes.end() ? nullptr : &*found;
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
  if (IsStackd(base)) {
    findings.push_back(
        Bad("pid " + std::to_string(pid) + " is stackd itself here: this command sees the processes of stackd's container",
            "stackctl ps shows what is connected; in the container of the program, see whether "
            "/proc/PID/maps has the agent and /proc/PID/environ its variables"));
    return findings;
  }
  if (auto auxv = ReadFile(base + "/auxv"); auxv && IsSecure(*auxv)) {
    findings.push_back(
        Bad("it runs with more rights than its caller (set-user-ID, set-group-ID or file capabilities): the agent "
            "does nothing in such a program",
            "start it as that user, from a file without these rights"));
    return findings;
  }
  if (!maps) {
    findings.push_back(Remark(base + "/maps cannot be read: the process belongs to uid " + std::to_string(folder.st_uid),
                              "run stackctl doctor as that user"));
    return findings;
  }
  if (maps->find(kAgent) == std::string::npos) {
    findings.push_back(WhyNotLoaded(*maps, environ));
    return findings;
  }
  findings.push_back(Good(std::string(kAgent) + " is loaded"));
  if (environ && status) {
    for (Finding& finding : CheckEnvironment(base, *environ, *status, dir)) findings.push_back(std::move(finding));
  }
  if (status) findings.push_back(CheckSignal(*status, environ));
  constexpr uint64_t kFilter = 2;
  if (status && Numbers(*status, "Seccomp") == std::vector<uint64_t>{kFilter}) {
    findings.push_back(
        Remark("it runs under a filter of system calls (seccomp): one that refuses socket() or connect() keeps the "
               "agent from stackd",
               "allow socket, connect, sendmsg, recvmsg and ppoll"));
  }
  if (auto limits = ReadFile(base + "/limits")) {
    if (auto finding = CheckPendingLimit(*limits)) findings.push_back(*finding);
  }
  return findings;
}

std::vector<Finding> CheckOutside(const std::string& proc, int pid) {
  std::vector<Finding> findings;
  for (const Obstacle& obstacle : FindObstacles(proc, pid)) {
    const std::string text = "dump --pid: " + obstacle.text;
    findings.push_back(obstacle.effect == Obstacle::kNothingIsRead ? Bad(text, obstacle.way_out)
                                                                   : Remark(text, obstacle.way_out));
  }
  if (!findings.empty()) return findings;
  return {Good("dump --pid may read it without an agent: threads asleep where they sleep, those that run by ptrace")};
}

}  // namespace stackd

#include "daemon/outside/live_process.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "daemon/base/regular_file.h"
#include "daemon/outside/procfs_text.h"
#include "daemon/process/process_description.h"
#include "stackd/ring_abi.h"
#include "stackd/wire.h"

namespace stackd {
namespace {

std::string ReadLink(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  return {target, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

}  // namespace

Result<LiveProcess> LiveProcess::Open(const std::string& proc, int32_t pid) {
  LiveProcess process;
  process.pid_ = pid;
  process.path_ = proc + "/" + std::to_string(pid);
  const auto open_file = [&](const char* name, int flags) {
    return Fd(open((process.path_ + name).c_str(), O_RDONLY | O_CLOEXEC | flags));
  };
  Fd folder = open_file("", O_DIRECTORY);
  process.tasks_ = open_file("/task", O_DIRECTORY);
  process.memory_ = open_file("/mem", 0);
  process.maps_ = open_file("/maps", 0);
  // Before a thread is looked at: what would be refused is said with its reason.
  process.obstacles_ = FindObstacles(proc, pid);
  for (const Obstacle& obstacle : process.obstacles_) {
    if (obstacle.effect != Obstacle::kNothingIsRead) continue;
    return Error(obstacle.code, obstacle.text + ": " + obstacle.way_out);
  }
  process.files_ = std::make_shared<ProcessFiles>();
  Fd memory(dup(process.memory_.get())), maps(dup(process.maps_.get()));
  const bool is_procfs =
      process.files_->SetFolder(&folder) && process.files_->SetMaps(&maps) && process.files_->SetMemory(&memory);
  if (!is_procfs) return Error(Code::kNotFound, "process " + std::to_string(pid) + " has just ended");
  return process;
}

std::string LiveProcess::id() const { return std::to_string(pid_) + "-" + std::to_string(files_->StartTicks()); }

ProcessDescription LiveProcess::Describe() const {
  stackd_hello hello{};
  hello.abi_version = STACKD_ABI_VERSION;
  // The user who chose the process may read all of it.
  hello.share = STACKD_SHARE_MEMORY;
  hello.pid = pid_;
  hello.start_ticks = files_->StartTicks();
  // The host name of this process, which mostly runs where the other does.
  gethostname(hello.hostname, sizeof(hello.hostname) - 1);
  // Up to its first NUL.
  ReadProcfsText(path_ + "/cmdline").copy(hello.argv0, sizeof(hello.argv0) - 1);
  ReadLink(path_ + "/exe").copy(hello.exe, sizeof(hello.exe) - 1);
  const int64_t uid = UidsIn(ReadProcfsText(path_ + "/status")).effective;
  ProcessDescription description = DescribeProcess(hello, static_cast<uid_t>(uid), id());
  description.thread_count = files_->ThreadCount();
  return description;
}

Fd LiveProcess::OpenPerfMap() const {
  const std::string status = ReadProcfsText(path_ + "/status");
  const std::string_view pids = FieldOfStatus(status, "NSpid");
  const std::string own_pid(pids.substr(pids.find_last_of('\t') + 1));
  Fd file = OpenRegularFile(path_ + "/root/tmp/perf-" + own_pid + ".map", /*follow_link=*/false);
  struct stat info{};
  // Another name: another user may have linked a file of this one there.
  const bool is_own =
      file.valid() && fstat(file.get(), &info) == 0 && info.st_uid == UidsIn(status).effective && info.st_nlink == 1;
  return is_own ? std::move(file) : Fd();
}

Fd LiveProcess::OpenMapped(const std::string& path) const {
  const std::string executable = path_ + "/exe";
  if (path == "/proc/self/exe" || path == ReadLink(executable)) return OpenRegularFile(executable, /*follow_link=*/true);
  // Its file may be another one by now: who loads modules compares it with memory.
  return OpenRegularFile(path_ + "/root" + path, /*follow_link=*/false);
}

}  // namespace stackd

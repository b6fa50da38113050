#include "daemon/process/file_lock_procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

constexpr size_t kMaxLocksBytes = 1u << 20;
constexpr int kMaxThreads = 64;
constexpr int kMaxOpenFiles = 4096;

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

std::string PathOf(int32_t pid, const char* file) { return "/proc/" + std::to_string(pid) + "/" + file; }

// The first bytes of a file below `folder`, or of a path; empty if it cannot be read.
std::string ReadBegin(int folder, const char* path) {
  const Fd file(openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  char text[4096];
  const ssize_t got = file.valid() ? read(file.get(), text, sizeof(text)) : -1;
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : std::string();
}

bool IsRunning(const std::string& stat) {
  // "tid (name) S ...", and the name may hold anything.
  const size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() && (stat[end + 2] == 'R' || stat[end + 2] == 'D');
}

bool Describes(std::string_view fdinfo, const FileLockLine& taken) {
  constexpr std::string_view kKey = "\nlock:\t";
  for (size_t at = fdinfo.find(kKey); at != fdinfo.npos; at = fdinfo.find(kKey, at + 1)) {
    const std::string_view rest = fdinfo.substr(at + kKey.size());
    const auto locks = ParseFileLocks(rest.substr(0, rest.find('\n')));
    if (!locks.empty() && locks[0].holder == taken) return true;
  }
  return false;
}

}  // namespace

bool OwnProcfsCountsAsDaemon() {
  char target[32];
  const ssize_t size = readlink("/proc/self", target, sizeof(target));
  return size > 0 && std::string_view(target, static_cast<size_t>(size)) == std::to_string(getpid());
}

std::vector<HeldFileLock> ReadFileLocks() {
  const Fd file(open("/proc/locks", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct statfs file_system;
  if (!file.valid() || fstatfs(file.get(), &file_system) != 0 || file_system.f_type != PROC_SUPER_MAGIC) return {};
  std::string text;
  while (text.size() < kMaxLocksBytes) {
    const size_t at = text.size();
    text.resize(std::min(at + (64u << 10), kMaxLocksBytes));
    const ssize_t got = read(file.get(), text.data() + at, text.size() - at);
    text.resize(at + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) break;
  }
  // Half a line would be of another file.
  text.resize(text.rfind('\n') + 1);
  return ParseFileLocks(text);
}

std::string NameOfProcess(int32_t pid) {
  const std::string text = ReadBegin(AT_FDCWD, PathOf(pid, "comm").c_str());
  return ToValidUtf8(std::string_view(text).substr(0, text.find('\n')));
}

bool HasRunningThread(int32_t pid) {
  const Folder tasks(opendir(PathOf(pid, "task").c_str()), closedir);
  if (tasks == nullptr) return false;
  int looked_at = 0;
  for (const dirent* entry = readdir(tasks.get()); entry != nullptr && looked_at < kMaxThreads;
       entry = readdir(tasks.get())) {
    if (entry->d_name[0] == '.') continue;
    looked_at++;
    if (IsRunning(ReadBegin(dirfd(tasks.get()), (std::string(entry->d_name) + "/stat").c_str()))) return true;
  }
  return false;
}

StillHolds HasFlock(const FileLockLine& taken, int64_t deadline_ns) {
  // The kernel shows the number of a process that has ended, too.
  if (kill(taken.pid, 0) != 0 && errno == ESRCH) return StillHolds::kNo;
  const Folder open_files(opendir(PathOf(taken.pid, "fdinfo").c_str()), closedir);
  if (open_files == nullptr) return StillHolds::kNotKnown;
  int looked_at = 0;
  for (const dirent* entry = readdir(open_files.get()); entry != nullptr; entry = readdir(open_files.get())) {
    if (entry->d_name[0] == '.') continue;
    if (++looked_at > kMaxOpenFiles || MonotonicNs() >= deadline_ns) return StillHolds::kNotKnown;
    const std::string text = ReadBegin(dirfd(open_files.get()), entry->d_name);
    // It is closed, or not to be read.
    if (text.empty() && errno != ENOENT) return StillHolds::kNotKnown;
    if (Describes(text, taken)) return StillHolds::kYes;
  }
  // A main thread that has ended shows no files, while other threads have them.
  return looked_at == 0 ? StillHolds::kNotKnown : StillHolds::kNo;
}

}  // namespace stackd

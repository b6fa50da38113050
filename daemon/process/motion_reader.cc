#include "daemon/process/motion_reader.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

namespace stackd {
namespace {

// Beyond, a look would take as long as the looks at all others may.
constexpr size_t kMaxThreads = 16'384;

// The kernel counts the folder of each thread as a link of the folder that they are in.
constexpr size_t kOtherLinks = 2;

std::atomic<int> open_now{0};

// No more than a quarter of what the daemon may open.
int MaxFiles() {
  static const int max = [] {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    return static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 4, MotionReader::kMaxFiles));
  }();
  return max;
}

bool MayKeepOneMore() {
  if (open_now.fetch_add(1) < MaxFiles()) return true;
  --open_now;
  return false;
}

std::optional<ThreadMotion> ReadFrom(int fd, int32_t tid) {
  char text[96];
  const ssize_t got = fd >= 0 ? pread(fd, text, sizeof(text), 0) : -1;
  if (got <= 0) return std::nullopt;
  return MotionIn({text, static_cast<size_t>(got)}, tid);
}

}  // namespace

MotionReader::MotionReader(std::shared_ptr<const ProcessFiles> files) : files_(std::move(files)) {}

MotionReader::~MotionReader() { open_now -= static_cast<int>(kept_.size()); }

int MotionReader::open_files() { return open_now.load(); }

void MotionReader::Forget(std::map<int32_t, Kept>::iterator kept) {
  kept_.erase(kept);
  --open_now;
}

// If each thread that is kept is there, and there are as many, there are no others.
std::optional<std::vector<ThreadMotion>> MotionReader::ReadKept(const Fd& tasks) {
  struct stat status;
  if (kept_.empty() || fstat(tasks.get(), &status) != 0 || status.st_nlink != kept_.size() + kOtherLinks)
    return std::nullopt;
  std::vector<ThreadMotion> motions;
  motions.reserve(kept_.size());
  for (const auto& [tid, kept] : kept_) {
    const auto motion = ReadFrom(kept.file.get(), tid);
    if (!motion) return std::nullopt;
    motions.push_back(*motion);
  }
  return motions;
}

Result<std::vector<ThreadMotion>> MotionReader::Read() {
  const auto unavailable = [](const char* why) { return Error(Code::kUnavailable, why); };
  std::lock_guard lock(mutex_);
  const Fd tasks = files_->OpenTasks();
  if (auto motions = ReadKept(tasks)) return std::move(*motions);
  const std::vector<int32_t> tids = files_->Tids();
  if (tids.empty() || !tasks.valid()) return unavailable("its threads cannot be listed: it has ended, or passed no folder");
  if (tids.size() > kMaxThreads) return unavailable("it has more threads than can be looked at");
  std::vector<ThreadMotion> motions;
  motions.reserve(tids.size());
  ++looks_;
  bool told = false;
  for (int32_t tid : tids) {
    std::optional<ThreadMotion> motion;
    if (const auto kept = kept_.find(tid); kept != kept_.end()) {
      kept->second.look = looks_;
      motion = ReadFrom(kept->second.file.get(), tid);
      // Another thread may have the tid by now.
      if (!motion) Forget(kept);
    }
    if (!motion) {
      Fd file = ProcessFiles::OpenMotion(tasks, tid);
      motion = ReadFrom(file.get(), tid);
      const bool is_wanted = motion && tids.size() >= kManyThreads && kept_.size() < kMaxFilesOfOne;
      if (is_wanted && MayKeepOneMore()) kept_.insert_or_assign(tid, Kept{std::move(file), looks_});
    }
    if (!motion) continue;  // it has ended meanwhile
    told |= motion->run_count != 0;
    motions.push_back(*motion);
  }
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const auto next = std::next(kept);
    if (kept->second.look != looks_) Forget(kept);
    kept = next;
  }
  // The kernel lists them as they began, and tids wrap around.
  std::ranges::sort(motions, {}, &ThreadMotion::tid);
  // Every thread has run once, or it could not be here.
  if (!told) return unavailable("the kernel does not tell how long threads run");
  return motions;
}

}  // namespace stackd

#include "daemon/collect/wait_collector.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/capture/waited_on.h"
#include "daemon/process/file_lock_holders.h"
#include "daemon/process/futex_words.h"
#include "daemon/process/lock_holders.h"

namespace stackd {
namespace {

// What threads wait for is read when they have answered: a capture that is late as it is has still so long for it.
constexpr int64_t kGraceNs = 20 * kNsPerMs;
constexpr size_t kMaxPolledFds = 20'000;
// Names of fds come from the process, which may not tell them. A crash must not hold the process for names.
constexpr int64_t kFdNamesNs = 50 * kNsPerMs;
constexpr int64_t kCrashFdNamesNs = 10 * kNsPerMs;
// The time for /proc/locks, and the open files of those that have locks.
constexpr int64_t kFileLocksNs = 500 * kNsPerMs;
// The most file locks that are looked up for one process.
constexpr size_t kMaxFileLocks = 16;

}  // namespace

void WaitCollector::AddWaits(int64_t deadline_ns, Capture* capture) {
  if (!process_->connected()) return;
  deadline_ns = std::max(deadline_ns, MonotonicNs() + kGraceNs);
  AddFacts(deadline_ns, capture);
  const bool is_crash = capture->trigger == Trigger::kCrash;
  AddFdNames(std::min(deadline_ns, MonotonicNs() + (is_crash ? kCrashFdNamesNs : kFdNamesNs)), capture);
  if (!is_crash) AddFileLocks(MonotonicNs() + kFileLocksNs, capture);
}

void WaitCollector::AddFacts(int64_t deadline_ns, Capture* capture) {
  std::vector<ThreadCall> in_memory;
  for (ThreadCapture& thread : capture->threads) {
    if (!thread.call) continue;
    thread.waited_fds = WaitedFds(*thread.call);
    if (WaitsInMemory(*thread.call)) in_memory.push_back({thread.tid, *thread.call});
  }
  if (in_memory.empty()) return;
  auto facts = reader_->ReadFacts(RwlockLayoutOf(*capture->map), in_memory, deadline_ns);
  if (!facts) {
    capture->notes.push_back(facts.error().message);
    return;
  }
  if (facts->futex_count > kMaxFutexWords) {
    capture->notes.push_back("its threads wait on " + std::to_string(facts->futex_count) +
                             " futexes: " + std::to_string(kMaxFutexWords) + " futexes were looked at");
  }
  capture->futexes = std::move(facts->futexes);
  AddPolledFds(&*facts, capture);
  DropEndedCycles(std::move(in_memory), deadline_ns, capture);
  if (process_->TellsWaits() && facts->futex_count <= kMaxFutexWords) ForgetUntold(capture);
  LookAtHolders(deadline_ns, capture);
}

void WaitCollector::AddPolledFds(WaitFacts* facts, Capture* capture) {
  size_t polled_fds = 0;
  for (ThreadCapture& thread : capture->threads) {
    auto polled = facts->polled.find(thread.tid);
    if (polled == facts->polled.end()) continue;
    polled->second.resize(std::min(polled->second.size(), kMaxPolledFds - polled_fds));
    polled_fds += polled->second.size();
    thread.waited_fds = std::move(polled->second);
  }
  if (polled_fds == kMaxPolledFds) {
    capture->notes.push_back("its threads wait for more than " + std::to_string(kMaxPolledFds) +
                             " fds: the others are not named");
  }
}

void WaitCollector::LookAtHolders(int64_t deadline_ns, Capture* capture) {
  if (!HasHolderOutsideCalls(*capture)) return;
  if (const auto sample = sampler_->SampleWaits(deadline_ns, /*gives_way=*/true)) MarkHoldersAsleep(*sample, capture);
}

void WaitCollector::AddFdNames(int64_t deadline_ns, Capture* capture) {
  std::vector<int32_t> fds;
  for (const ThreadCapture& thread : capture->threads) {
    fds.insert(fds.end(), thread.waited_fds.begin(), thread.waited_fds.end());
  }
  if (fds.empty() || process_->waker().is_filtered()) return;
  capture->fds = process_->questions().DescribeFds(fds, deadline_ns);
}

void WaitCollector::AddFileLocks(int64_t deadline_ns, Capture* capture) {
  std::vector<FileLockWait> waits;
  for (const ThreadCapture& thread : capture->threads) {
    const auto kind = thread.call ? WaitedFileLock(*thread.call) : std::nullopt;
    // The kernel records no process for the wait of an open file.
    if (!kind || *kind == FileLockKind::kOpenFile || thread.waited_fds.empty()) continue;
    const auto is_same = [&](const FileLockWait& wait) { return wait.fd == thread.waited_fds[0] && wait.kind == *kind; };
    if (waits.size() == kMaxFileLocks || std::ranges::any_of(waits, is_same)) continue;
    waits.push_back({thread.waited_fds[0], *kind, thread.tid});
  }
  if (waits.empty()) return;
  const int32_t pid = process_->PidForDaemon();
  auto locks = std::make_shared<std::vector<FileLock>>();
  const auto look = [=, has_flock = has_flock_, waits = std::move(waits)](const ProcessFiles& files) {
    *locks = FindFileLockHolders(files, pid, waits, deadline_ns, has_flock);
  };
  const bool read = process_->memory()->Run(deadline_ns, look);
  if (read) capture->file_locks = std::move(*locks);
}

}  // namespace stackd

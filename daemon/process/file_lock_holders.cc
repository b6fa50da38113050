#include "daemon/process/file_lock_holders.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/process/file_lock_procfs.h"
#include "daemon/process/file_locks.h"

namespace stackd {
namespace {

// No sentence names more processes.
constexpr size_t kMaxCycle = 8;
constexpr size_t kMaxSearched = 1024;

// One reading of /proc/locks.
class LockTable {
 public:
  explicit LockTable(std::vector<HeldFileLock> locks) : locks_(std::move(locks)) {
    for (const HeldFileLock& lock : locks_) {
      for (const FileLockLine& waiter : lock.waiters) {
        if (waiter.pid > 0) held_against_.emplace(waiter.pid, &lock.holder);
      }
    }
  }

  // Lines of what keeps waits of `kind` of process `pid` waiting.
  std::vector<const FileLockLine*> InTheWay(int32_t pid, FileLockKind kind) const {
    std::vector<const FileLockLine*> holders;
    for (const HeldFileLock& lock : locks_) {
      const auto is_its = [&](const FileLockLine& waiter) { return waiter.pid == pid && waiter.kind == kind; };
      if (std::ranges::any_of(lock.waiters, is_its)) holders.push_back(&lock.holder);
    }
    return holders;
  }

  // Other processes that have flock() on the file to read, as `holder` has.
  uint32_t CountMoreReaders(const FileLockLine& holder) const {
    std::set<int32_t> pids;
    for (const HeldFileLock& lock : locks_) {
      const FileLockLine& other = lock.holder;
      const bool is_like_it = other.kind == holder.kind && other.is_read && other.file == holder.file;
      if (is_like_it && other.pid != holder.pid) pids.insert(other.pid);
    }
    return holder.kind == FileLockKind::kFlock && holder.is_read ? static_cast<uint32_t>(pids.size()) : 0;
  }

  // Holders of the locks that lead from a wait of process `from` to `to`; empty: no way leads there.
  std::vector<FileLockLine> WayBetween(int32_t from, int32_t to) const {
    std::map<int32_t, std::pair<int32_t, FileLockLine>> reached_from;
    std::vector<int32_t> queue{from};
    for (size_t i = 0; i < queue.size() && queue.size() < kMaxSearched && !reached_from.contains(to); ++i) {
      const auto [begin, end] = held_against_.equal_range(queue[i]);
      for (auto held = begin; held != end; ++held) {
        const FileLockLine& holder = *held->second;
        const bool is_new = holder.pid > 0 && holder.pid != from && !reached_from.contains(holder.pid);
        if (!is_new) continue;
        reached_from.emplace(holder.pid, std::pair(queue[i], holder));
        queue.push_back(holder.pid);
      }
    }
    std::vector<FileLockLine> way;
    for (auto step = reached_from.find(to); step != reached_from.end(); step = reached_from.find(step->second.first)) {
      way.insert(way.begin(), step->second.second);
    }
    return way.size() < kMaxCycle ? way : std::vector<FileLockLine>();
  }

 private:
  const std::vector<HeldFileLock> locks_;
  std::multimap<int32_t, const FileLockLine*> held_against_;  // by the pid of the waiter
};

class HolderSearch {
 public:
  HolderSearch(const ProcessFiles& files, int32_t pid, const std::vector<FileLockWait>& waits, int64_t deadline_ns,
               const AskFlock& has_flock)
      : files_(files),
        pid_(pid),
        waits_(waits),
        deadline_ns_(deadline_ns),
        has_flock_(has_flock),
        table_(ReadFileLocks()) {}

  std::optional<FileLock> Find(const FileLockWait& wait) {
    const FileLockLine* holder = HolderOf(wait);
    if (holder == nullptr) return std::nullopt;
    FileLock lock{.fd = wait.fd, .kind = wait.kind, .held_as = holder->kind, .is_read_lock = holder->is_read};
    if (holder->pid <= 0) return lock;
    lock.holder = Describe(holder->pid);
    lock.is_own = holder->pid == pid_;
    lock.runs = HasRunningThread(holder->pid);
    lock.still_holds = StillHoldsLock(*holder);
    lock.more_readers = table_.CountMoreReaders(*holder);
    if (!lock.is_own && lock.still_holds == StillHolds::kYes) lock.cycle = FindCycle(holder->pid);
    return lock;
  }

 private:
  // What keeps `wait` waiting; nullptr where that is not certain.
  const FileLockLine* HolderOf(const FileLockWait& wait) const {
    std::vector<const FileLockLine*> holders = table_.InTheWay(pid_, wait.kind);
    const auto inode = files_.InodeOf(wait.tid, wait.fd);
    if (inode) std::erase_if(holders, [&](const FileLockLine* holder) { return holder->file.inode != *inode; });
    // Kernels before 5.14 tell no inode.
    const auto is_of_kind = [&](const FileLockWait& other) { return other.kind == wait.kind; };
    if (!inode && std::ranges::count_if(waits_, is_of_kind) != 1) return nullptr;
    if (holders.empty()) return nullptr;
    // Two records of a file, or two files with one number on different devices.
    const auto differs = [&](const FileLockLine* holder) {
      const bool is_another_reader = wait.kind == FileLockKind::kFlock && holder->is_read && holders[0]->is_read;
      return holder->file != holders[0]->file || (holder->pid != holders[0]->pid && !is_another_reader);
    };
    return std::ranges::any_of(holders, differs) ? nullptr : holders[0];
  }

  StillHolds StillHoldsLock(const FileLockLine& holder) const {
    // The kernel gives a lock of fcntl() to no other process, and ends it with its process.
    if (holder.kind == FileLockKind::kRecord) return StillHolds::kYes;
    return has_flock_(holder, deadline_ns_);
  }

  // A second reading confirms the cycle: a long table is not read in one piece, and its parts may be of different moments.
  std::vector<LockingProcess> FindCycle(int32_t holder_pid) {
    const std::vector<FileLockLine> way = table_.WayBetween(holder_pid, pid_);
    if (way.empty() || MonotonicNs() >= deadline_ns_) return {};
    const auto holds = [&](const FileLockLine& line) { return StillHoldsLock(line) == StillHolds::kYes; };
    if (!std::ranges::all_of(way, holds)) return {};
    if (LockTable(ReadFileLocks()).WayBetween(holder_pid, pid_) != way) return {};
    std::vector<LockingProcess> cycle{Describe(holder_pid)};
    for (const FileLockLine& step : way) {
      if (step.pid != pid_) cycle.push_back(Describe(step.pid));
    }
    return cycle;
  }

  static LockingProcess Describe(int32_t pid) { return {pid, NameOfProcess(pid)}; }

  const ProcessFiles& files_;
  const int32_t pid_;
  const std::vector<FileLockWait>& waits_;
  const int64_t deadline_ns_;
  const AskFlock& has_flock_;
  const LockTable table_;
};

}  // namespace

std::vector<FileLock> FindFileLockHolders(const ProcessFiles& files, int32_t pid, const std::vector<FileLockWait>& waits,
                                          int64_t deadline_ns, const AskFlock& has_flock) {
  std::vector<FileLock> locks;
  if (pid <= 0 || !OwnProcfsCountsAsDaemon()) return locks;
  HolderSearch search(files, pid, waits, deadline_ns, has_flock);
  for (const FileLockWait& wait : waits) {
    if (MonotonicNs() >= deadline_ns) break;
    if (auto lock = search.Find(wait)) locks.push_back(*std::move(lock));
  }
  return locks;
}

}  // namespace stackd

#include "daemon/outside/outside_waits.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/capture/waited_on.h"
#include "daemon/modules/address_map.h"
#include "daemon/outside/fd_descriptions.h"
#include "daemon/outside/procfs_text.h"
#include "daemon/process/file_lock_holders.h"
#include "daemon/process/file_lock_procfs.h"
#include "daemon/process/futex_words.h"
#include "daemon/process/lock_holders.h"
#include "daemon/process/lock_layout.h"
#include "daemon/process/schedstat_reader.h"
#include "daemon/process/wait_facts.h"

namespace stackd {
namespace {

// A capture that is late as it is has still so long for what its threads wait for.
constexpr int64_t kGraceNs = 20 * kNsPerMs;
constexpr int64_t kFdNamesNs = 200 * kNsPerMs;
constexpr int64_t kNameOwnersNs = 100 * kNsPerMs;
constexpr int64_t kFileLocksNs = 500 * kNsPerMs;
constexpr int64_t kReadFutexesNs = 100 * kNsPerMs;
constexpr int64_t kMinConfirmNs = 100 * kNsPerMs;
constexpr int64_t kMaxConfirmNs = 500 * kNsPerMs;
constexpr size_t kMaxFileLocks = 16;

std::vector<ThreadCall> CallsOf(const Capture& capture) {
  std::vector<ThreadCall> calls;
  for (const ThreadCapture& thread : capture.threads) {
    if (thread.call) calls.push_back({thread.tid, *thread.call});
  }
  return calls;
}

// Whether a number of a thread means the same to it as to /proc here: it is in no PID namespace below that.
bool HasOnePid(const std::string& status) {
  return !status.empty() && FieldOfStatus(status, "NSpid").find('\t') == std::string_view::npos;
}

// The process that has thread `tid`, as `waiter_pid` counts threads, and has mapped `memory`; 0: none is known.
int32_t ProcessWithThreadAndMemory(int32_t waiter_pid, int32_t tid, const SharedMemory& memory) {
  const auto status_of = [](int32_t id) { return ReadProcfsText("/proc/" + std::to_string(id) + "/status"); };
  const std::string status = status_of(tid);
  if (!OwnProcfsCountsAsDaemon() || !HasOnePid(status) || !HasOnePid(status_of(waiter_pid))) return 0;
  const auto pid = static_cast<int32_t>(NumberIn(status, "Tgid"));
  const std::vector<Mapping> mappings = ParseMaps(ReadProcfsText("/proc/" + std::to_string(pid) + "/maps"));
  const bool has_memory = std::ranges::any_of(mappings, [&](const Mapping& mapping) {
    return mapping.shared && SharedMemory{mapping.device, mapping.inode} == memory;
  });
  return has_memory ? pid : 0;
}

}  // namespace

bool OutsideWaits::IsStopped() const {
  const char state = process_->files()->State();
  return state == 'T' || state == 't';
}

CycleProbe OutsideWaits::Probe(int64_t deadline_ns) const {
  CycleProbe probe;
  probe.read_sched_stats = [this] { return ListSchedStats(*process_->files()).value_or(std::vector<ThreadSchedStat>{}); };
  probe.sample = [this, deadline_ns] { return Result<std::vector<ThreadWait>>(threads_->SampleWaits(deadline_ns)); };
  probe.is_connected = [this] { return process_->files()->State() != 0; };
  return probe;
}

void OutsideWaits::Add(int64_t deadline_ns, Capture* capture) const {
  deadline_ns = std::max(deadline_ns, MonotonicNs() + kGraceNs);
  AddFacts(deadline_ns, capture);
  std::vector<int32_t> fds;
  for (const ThreadCapture& thread : capture->threads) {
    fds.insert(fds.end(), thread.waited_fds.begin(), thread.waited_fds.end());
  }
  auto described = std::make_shared<std::vector<WaitedFd>>();
  const bool is_told = memory_->Run(
      std::min(deadline_ns, MonotonicNs() + kFdNamesNs),
      [=, path = process_->path(), fds = std::move(fds)](const ProcessFiles&) { *described = DescribeFds(path, fds); });
  if (is_told) capture->fds = std::move(*described);
  AddFileLocks(MonotonicNs() + kFileLocksNs, capture);
  NameOwnersElsewhere(MonotonicNs() + kNameOwnersNs, capture);
}

void OutsideWaits::NameOwnersElsewhere(int64_t deadline_ns, Capture* capture) const {
  std::vector<FutexWord*> words;
  for (FutexWord& word : capture->futexes) {
    const int32_t tid = HolderOf(word);
    const bool is_own = std::ranges::find(capture->threads, tid, &ThreadCapture::tid) != capture->threads.end();
    if (word.is_shared && tid != 0 && !is_own && word.shared_memory != SharedMemory{}) words.push_back(&word);
  }
  if (words.empty()) return;
  // Pairs of tid and memory, and for each the process, or 0.
  auto asked = std::make_shared<std::vector<std::pair<int32_t, SharedMemory>>>();
  auto pids = std::make_shared<std::vector<int32_t>>(words.size());
  for (const FutexWord* word : words) asked->emplace_back(HolderOf(*word), word->shared_memory);
  const bool read = memory_->Run(deadline_ns, [=, pid = process_->pid()](const ProcessFiles&) {
    for (size_t i = 0; i < asked->size() && MonotonicNs() < deadline_ns; i++) {
      (*pids)[i] = ProcessWithThreadAndMemory(pid, (*asked)[i].first, (*asked)[i].second);
    }
  });
  for (size_t i = 0; read && i < words.size(); i++) {
    words[i]->owner_pid = (*pids)[i];
    words[i]->owner_process_name = (*pids)[i] == 0 ? "" : NameOfProcess((*pids)[i]);
  }
}

void OutsideWaits::AddFacts(int64_t deadline_ns, Capture* capture) const {
  std::vector<ThreadCall> in_memory = AddWaitFacts(*memory_, deadline_ns, capture);
  if (!EdgesInCycles(EdgesOf(in_memory, capture->futexes)).empty()) {
    ConfirmCycles(std::move(in_memory), {}, deadline_ns, capture);
  }
  if (HasHolderOutsideCalls(*capture)) MarkHoldersAsleep(threads_->SampleWaits(deadline_ns), capture);
}

void OutsideWaits::AddFileLocks(int64_t deadline_ns, Capture* capture) const {
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
  const int32_t pid = process_->files()->PidInOwnProcfs();
  auto locks = std::make_shared<std::vector<FileLock>>();
  const bool read = memory_->Run(deadline_ns, [=, waits = std::move(waits)](const ProcessFiles& files) {
    *locks = FindFileLockHolders(files, pid, waits, deadline_ns);
  });
  if (read) capture->file_locks = std::move(*locks);
}

void OutsideWaits::ConfirmCycles(std::vector<ThreadCall> calls, const LookAtLocks& look, int64_t deadline_ns,
                                 Capture* capture) const {
  // In a stopped process no thread goes on.
  if (IsStopped()) return;
  const int64_t now_ns = MonotonicNs();
  deadline_ns = std::clamp(deadline_ns, now_ns + kMinConfirmNs, now_ns + kMaxConfirmNs);
  std::vector<uint64_t> avmas;
  for (const ThreadCall& thread : calls) {
    if (const auto futex = WaitedFutex(thread.call)) avmas.push_back(*futex);
  }
  const RwlockLayout layout = RwlockLayoutOf(*capture->map);
  std::vector<ManagedWait>& waits = capture->managed.waits;
  CycleProbe probe = Probe(deadline_ns);
  probe.read_locks = [&](const std::vector<ThreadWait>& sample) -> std::optional<std::vector<LockEdge>> {
    auto words = std::make_shared<std::vector<FutexWord>>();
    const bool read = memory_->Run(MonotonicNs() + kReadFutexesNs,
                                   [=](const ProcessFiles& files) { *words = ReadFutexWords(files, layout, avmas); });
    auto waits_now = look ? look(sample, deadline_ns) : std::vector<ManagedWait>{};
    if (!read || !waits_now) return std::nullopt;
    capture->futexes = std::move(*words);
    TakeOwners(*waits_now, &waits);
    return EdgesOf(calls, capture->futexes, waits);
  };
  auto [has_looked, unconfirmed_tids] = stackd::ConfirmCycles(probe, deadline_ns);
  if (!has_looked) {
    capture->notes.push_back(
        "threads wait for each other in a circle by one reading of their locks; it could not be confirmed by a second");
  }
  for (ManagedWait& wait : waits) {
    if (!has_looked || unconfirmed_tids.erase(wait.waiter_tid) != 0) wait.owner_tid = 0;
  }
  for (ThreadCapture& thread : capture->threads) {
    if (unconfirmed_tids.contains(thread.tid)) thread.call.reset();
  }
}

void OutsideWaits::DropWaitsThatEnded(Capture* capture) const {
  std::vector<LockEdge> waits;  // each thread for itself: that is a cycle
  for (const ThreadCapture& thread : capture->threads) {
    if (thread.status == ThreadStatus::kExited) continue;
    const auto futex = thread.call ? WaitedFutex(*thread.call) : std::nullopt;
    if (!futex) return;
    waits.push_back({thread.tid, thread.tid, *futex});
  }
  if (waits.empty() || IsStopped()) return;
  const int64_t deadline_ns = MonotonicNs() + kMaxConfirmNs;
  CycleProbe probe = Probe(deadline_ns);
  probe.read_locks = [&](const std::vector<ThreadWait>&) { return std::optional(waits); };
  const auto [has_looked, unconfirmed_tids] = stackd::ConfirmCycles(probe, deadline_ns);
  const std::vector<int32_t> now = process_->files()->Tids();
  const bool has_more = std::ranges::any_of(
      now, [&](int32_t tid) { return std::ranges::find(waits, tid, &LockEdge::waiter_tid) == waits.end(); });
  for (ThreadCapture& thread : capture->threads) {
    if (has_more || unconfirmed_tids.contains(thread.tid)) thread.call.reset();
  }
}

void OutsideWaits::Confirm(const LookAtLocks& look, int64_t deadline_ns, Capture* capture) const {
  std::vector<ThreadCall> calls = CallsOf(*capture);
  // Cycles of futexes alone are confirmed by now.
  const auto in_cycles = EdgesInCycles(EdgesOf(calls, capture->futexes, capture->managed.waits));
  if (std::ranges::any_of(in_cycles, [](const LockEdge& edge) { return edge.futex_avma == 0; })) {
    ConfirmCycles(std::move(calls), look, deadline_ns, capture);
  }
  DropWaitsThatEnded(capture);
}

}  // namespace stackd

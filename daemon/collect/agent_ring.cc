#include "daemon/collect/agent_ring.h"

#include <errno.h>

#include <utility>
#include <vector>

namespace stackd {
namespace {

// Threads do not ring when they have committed a record, since a wake call from a handler is a pause of the thread. The
// reader looks by itself this often. At 100,000 stacks a second that is 20 records, of the 381 slots of a 1 MiB ring.
constexpr int64_t kPollNs = 200'000;
constexpr int kMaxErrno = 4095;

// The part of a capture's time that is kept for what comes after the helper's own deadline: the threads that did not
// answer.
int64_t GraceNs(int64_t budget_ns) { return std::clamp(budget_ns / 4, kNsPerMs, 60 * kNsPerMs); }

}  // namespace

// Sorts the records of a ring.
class AgentRing::Listener : public RingReader::Listener {
 public:
  Listener(const Sinks& sinks, CollectorCounters* counters) : sinks_(sinks), counters_(counters) {}

  void OnThread(ThreadRecord record) override {
    if (sinks_.recording != nullptr) return sinks_.recording->OnThread(std::move(record));
    counters_->ring_records++;
    counters_->ring_late_records++;
  }
  void OnStatus(StatusRecord record) override {
    if (sinks_.recording != nullptr) sinks_.recording->OnStatus(std::move(record));
  }
  void OnCrash(CrashRecord record) override { crashes.push_back(std::move(record)); }
  void OnWait(WaitRecord record) override {
    counters_->ring_records++;
    if (sinks_.sample != nullptr) sinks_.sample->OnWait(record);
  }
  void OnSchedStats(SchedStatRecord record) override {
    counters_->ring_records++;
    if (sinks_.schedstat_look != nullptr) sinks_.schedstat_look->OnSchedStats(record);
  }
  void OnCorrupt(const char* what) override {
    counters_->ring_corrupt_records++;
    if (sinks_.recording != nullptr) sinks_.recording->OnCorrupt(what);
  }

  std::vector<CrashRecord> crashes;

 private:
  const Sinks& sinks_;
  CollectorCounters* const counters_;
};

AgentRing::AgentRing(Ring* ring, const AgentProcess* process, CrashClaim* crash, CollectorCounters* counters)
    : ring_(ring), process_(process), crash_(crash), counters_(counters), reader_(ring) {}

void AgentRing::Begin(uint32_t command, const CaptureRequest& request, Sinks sinks) {
  {
    std::lock_guard lock(mutex_);
    sinks_ = sinks;
  }
  stackd_ring_header* header = ring_->header();
  header->command = command;
  header->only_tid = static_cast<uint32_t>(request.only_tid);
  header->quiet = static_cast<uint32_t>(request.quiet);
  header->deadline_ns = static_cast<uint64_t>(request.deadline_ns - GraceNs(request.deadline_ns - MonotonicNs()));
  header->max_stack_bytes = std::min(request.max_stack_bytes, kMaxStackBytes);
  __atomic_store_n(&header->command_seq, ++seq_, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&header->helper_sleeping, __ATOMIC_SEQ_CST) == 0) return;
  stackd_kick kick{.header = {STACKD_MSG_KICK, sizeof(kick)}};
  SendMessage(process_->socket_fd(), kick.header);
}

AgentRing::Progress AgentRing::Poll() {
  stackd_ring_header* header = ring_->header();
  // In this order: what was committed before these were set is drained after they were seen.
  Progress progress{.doorbell = reader_.Doorbell(), .is_connected = process_->connected()};
  progress.is_done = __atomic_load_n(&header->done_seq, __ATOMIC_ACQUIRE) == seq_;
  Drain();
  progress.has_begun = __atomic_load_n(&header->begun_seq, __ATOMIC_ACQUIRE) == seq_;
  if (progress.has_begun) progress.listed_count = __atomic_load_n(&header->threads_listed, __ATOMIC_RELAXED);
  if (!progress.is_done) return progress;
  const int32_t failure = __atomic_load_n(&header->failure, __ATOMIC_RELAXED);
  // The process may have written anything there.
  progress.failure = failure >= 0 ? 0 : failure < -kMaxErrno ? EPROTO : -failure;
  return progress;
}

void AgentRing::Wait(uint32_t doorbell) { reader_.Wait(doorbell, kPollNs); }

void AgentRing::End() {
  {
    std::lock_guard lock(mutex_);
    sinks_ = {};
  }
  __atomic_store_n(&ring_->header()->cancel_seq, seq_, __ATOMIC_RELAXED);
  CountDrops();
}

void AgentRing::CountDrops() {
  std::atomic<int64_t>* const totals[] = {&counters_->ring_dropped_no_slot, &counters_->ring_dropped_late,
                                          &counters_->ring_dropped_agent_fault, &counters_->ring_dropped_crash};
  for (size_t reason = 0; reason < std::size(totals); reason++) {
    uint64_t now = __atomic_load_n(&ring_->header()->dropped[reason], __ATOMIC_RELAXED);
    // A count that shrinks is a process's doing.
    if (now > dropped_seen_[reason])
      *totals[reason] += static_cast<int64_t>(std::min<uint64_t>(now - dropped_seen_[reason], 1u << 20));
    dropped_seen_[reason] = now;
  }
}

void AgentRing::Drain() {
  std::lock_guard lock(mutex_);
  Listener listener(sinks_, counters_);
  reader_.Drain(&listener);
  for (CrashRecord& crash : listener.crashes) crash_->Keep(std::move(crash));
}

void AgentRing::TakeTentativeCrash() {
  std::lock_guard lock(mutex_);
  if (crash_->has_crashed()) return;
  Listener listener(sinks_, counters_);
  reader_.TakeTentative(process_->closed_ns(), &listener);
  // A handler that jumped out of an older fault has recovered from it.
  auto newest = std::ranges::max_element(listener.crashes, {}, &CrashRecord::time_ns);
  if (newest == listener.crashes.end()) return;
  counters_->crashes_tentative++;
  newest->flags |= STACKD_CRASH_HANDLED;
  crash_->Keep(std::move(*newest));
}

}  // namespace stackd

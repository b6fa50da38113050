// What the records of one sample add up to: what each thread sleeps in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/capture/waits.h"
#include "daemon/ring/record.h"

namespace stackd {

// One thread at a time.
class WaitSample {
 public:
  // Takes records of the sample with this number.
  explicit WaitSample(uint32_t seq) : seq_(seq) {}

  void OnWait(const WaitRecord& record) {
    if (record.seq != seq_ || waits_.size() >= kMaxThreads) return;
    waits_.push_back({.tid = static_cast<int32_t>(record.tid),
                      .rsp_avma = record.rsp_avma,
                      .rip_avma = record.rip_avma,
                      .call = record.call});
  }

  // Leaves nothing.
  std::vector<ThreadWait> Take() { return std::move(waits_); }

 private:
  static constexpr size_t kMaxThreads = 100'000;

  const uint32_t seq_;
  std::vector<ThreadWait> waits_;
};

// The records of one look at how often and how long each thread has run.
class SchedStatLook {
 public:
  explicit SchedStatLook(uint32_t seq) : seq_(seq) {}

  void OnSchedStats(const SchedStatRecord& record) {
    if (record.seq != seq_ || sched_stats_.size() >= kMaxThreads) return;
    if (record.is_helper) helper_tid_ = static_cast<int32_t>(record.tid);
    if (record.is_helper) return;
    sched_stats_.push_back({.tid = static_cast<int32_t>(record.tid),
                            .run_ns = record.run_ns,
                            .runnable_ns = record.runnable_ns,
                            .run_count = record.run_count});
  }

  // 0: not seen.
  int32_t helper_tid() const { return helper_tid_; }
  // By tid, without the helper, which runs for the look. Leaves nothing.
  std::vector<ThreadSchedStat> Take() {
    // The kernel lists them as they began, and tids wrap around.
    std::ranges::sort(sched_stats_, {}, &ThreadSchedStat::tid);
    return std::move(sched_stats_);
  }

 private:
  static constexpr size_t kMaxThreads = 100'000;

  const uint32_t seq_;
  int32_t helper_tid_ = 0;
  std::vector<ThreadSchedStat> sched_stats_;
};

}  // namespace stackd

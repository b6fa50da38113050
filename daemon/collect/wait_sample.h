// What the records of one sample add up to: what each thread sleeps in.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/collect/waits.h"
#include "daemon/ring/record.h"

namespace stackd {

// One thread at a time.
class WaitSample {
 public:
  // Of the sample with this number.
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

}  // namespace stackd

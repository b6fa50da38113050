// What the pipeline has done since start.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/histogram.h"
#include "daemon/capture/capture.h"
#include "daemon/capture/named_stack.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// What PipelineCounters::ByName() does not tell apart.
struct PipelineMeasures {
  enum Outcome { kComplete, kPartial, kFailed, kOutcomes };

  std::array<std::array<std::atomic<int64_t>, kOutcomes>, 5> captures{};  // by Trigger
  std::array<std::atomic<int64_t>, 8> stacks_by_end{};                    // by StackEnd: each time one was unwound
  DurationHistogram capture, unwind, symbolize;                           // of dumps
};

struct PipelineCounters {
  PipelineMeasures measures;
  std::atomic<int64_t> dumps_running{0};
  std::atomic<int64_t> dumps_failed{0};
  std::atomic<int64_t> dumps_partial{0};
  std::atomic<int64_t> dumps_unstored{0};
  std::atomic<int64_t> dumps_resymbolized{0};
  std::array<std::atomic<int64_t>, 5> dumps_by_trigger{};
  std::atomic<int64_t> samples{0};
  std::atomic<int64_t> samples_failed{0};
  std::atomic<int64_t> crashes_known{0};
  std::atomic<int64_t> crashes_reread{0};
  std::atomic<int64_t> captures_set_aside{0};
  std::atomic<int64_t> stacks_unwound{0};
  std::atomic<int64_t> stacks_incomplete{0};
  std::atomic<int64_t> frames{0};
  std::atomic<int64_t> frames_unnamed{0};

  // Counts a dump that was made.
  void Count(const Capture& capture, const v1::Dump& dump, const std::vector<NamedStack>& stacks);
  // Counts a capture that failed.
  void CountFailed(Trigger trigger);
  std::map<std::string, int64_t> ByName() const;
};

// Counts as long as it lives.
class ScopedCount {
 public:
  explicit ScopedCount(std::atomic<int64_t>* count) : count_(count) { ++*count_; }
  ~ScopedCount() { --*count_; }

 private:
  std::atomic<int64_t>* count_;
};

}  // namespace stackd

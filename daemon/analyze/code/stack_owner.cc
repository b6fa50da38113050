#include "daemon/analyze/code/stack_owner.h"

#include <algorithm>

namespace stackd {
namespace {

// What a function without calls may use below its stack pointer (System V ABI, AMD64 supplement, 3.2.2).
constexpr uint64_t kRedZoneBytes = 128;
// More than what glibc and musl put above the thread pointer, at the top of a stack that they made.
constexpr uint64_t kDescriptorBytes = 4096;

uint64_t StackPointer(const ThreadCapture* thread) { return thread->registers.value[Registers::kRsp]; }

bool IsBehindTop(const ThreadCapture& thread, const Mapping& mapping, uint64_t avma) {
  const uint64_t self_avma = thread.thread_self_avma;
  const bool is_top_known = self_avma >= StackPointer(&thread) && self_avma < mapping.end_avma;
  return is_top_known && avma > self_avma && avma - self_avma >= kDescriptorBytes;
}

}  // namespace

StackOwners::StackOwners(const Capture& capture) {
  for (const ThreadCapture& thread : capture.threads) {
    if (thread.has_stack) by_stack_pointer_.push_back(&thread);
  }
  std::ranges::sort(by_stack_pointer_, {}, StackPointer);
}

const ThreadCapture* StackOwners::FirstAbove(const Mapping& mapping, uint64_t avma) const {
  const auto above = std::ranges::upper_bound(by_stack_pointer_, std::max(avma, mapping.start_avma), {}, StackPointer);
  return above != by_stack_pointer_.end() && StackPointer(*above) < mapping.end_avma ? *above : nullptr;
}

const ThreadCapture* StackOwners::Of(const Mapping& mapping, uint64_t avma) const {
  const uint64_t used_avma = std::min(avma + kRedZoneBytes, mapping.end_avma - 1);
  const ThreadCapture* above = FirstAbove(mapping, used_avma);
  const auto at = std::ranges::upper_bound(by_stack_pointer_, used_avma, {}, StackPointer);
  if (at == by_stack_pointer_.begin()) return above;
  const ThreadCapture* below = *std::prev(at);
  if (StackPointer(below) < mapping.start_avma) return above;
  return above != nullptr && IsBehindTop(*below, mapping, avma) ? above : below;
}

}  // namespace stackd

#include "daemon/managed/go/goroutine_look.h"

#include <algorithm>
#include <cstring>

namespace stackd {
namespace {

constexpr uint64_t kMaxUserAvma = 1ull << 47;
// From the innermost end; a deeper stack is shown without its outer frames.
constexpr uint64_t kMaxStackBytes = 64 << 10;
// Limit for one look. Frames take three times as much at most: a call takes at least a word of a stack.
constexpr uint64_t kLookStackBytes = 4 << 20;

template <typename T>
T Load(std::span<const uint8_t> bytes, size_t position) {
  T value;
  memcpy(&value, bytes.data() + position, sizeof(T));
  return value;
}

// Reader of a copy of a stack from `base_avma` up.
auto ReaderOf(uint64_t base_avma, std::span<const uint8_t> stack) {
  return [=](uint64_t avma) -> std::optional<uint64_t> {
    const uint64_t position = avma - base_avma;
    if (position >= stack.size() || stack.size() - position < 8) return std::nullopt;
    return Load<uint64_t>(stack, position);
  };
}

}  // namespace

Goroutine GoroutineLook::Parse(uint64_t g_avma, std::span<const uint8_t> bytes) const {
  const auto& at = binary_.layout().g;
  Goroutine goroutine;
  goroutine.g_avma = g_avma;
  goroutine.stack_lo = Load<uint64_t>(bytes, at.stack_lo);
  goroutine.stack_hi = Load<uint64_t>(bytes, at.stack_hi);
  goroutine.m_avma = Load<uint64_t>(bytes, at.m);
  goroutine.sched_sp = Load<uint64_t>(bytes, at.sched_sp);
  goroutine.sched_pc = Load<uint64_t>(bytes, at.sched_pc);
  goroutine.syscall_sp = Load<uint64_t>(bytes, at.syscall_sp);
  goroutine.syscall_pc = Load<uint64_t>(bytes, at.syscall_pc);
  goroutine.status = Load<uint32_t>(bytes, at.atomic_status) & ~kGoScanBit;
  goroutine.id = Load<uint64_t>(bytes, at.goid);
  goroutine.wait_since_ns = Load<int64_t>(bytes, at.wait_since);
  goroutine.wait_reason = Load<uint8_t>(bytes, at.wait_reason);
  goroutine.parent_id = Load<uint64_t>(bytes, at.parent_goid);
  goroutine.go_pc = Load<uint64_t>(bytes, at.go_pc);
  goroutine.start_pc = Load<uint64_t>(bytes, at.start_pc);
  return goroutine;
}

// If the layout is not the one that it is believed to be, this fails for most.
bool GoroutineLook::MakesSense(const Goroutine& goroutine) {
  const uint64_t stack_bytes = goroutine.stack_hi - goroutine.stack_lo;
  if (!GoStatusName(goroutine.status)) return false;
  if (!goroutine.is_live()) return true;
  if (goroutine.stack_lo >= goroutine.stack_hi || goroutine.stack_hi > kMaxUserAvma) return false;
  if (stack_bytes < 2048 || goroutine.id == 0 || goroutine.id >= 1ull << 60) return false;
  if (!goroutine.is_parked()) return true;
  const uint64_t sp = goroutine.sp();
  return sp % 8 == 0 && sp >= goroutine.stack_lo && sp < goroutine.stack_hi && walker_.MayBeCode(goroutine.pc());
}

size_t GoroutineLook::Look(std::span<const uint64_t> list) {
  const uint32_t g_bytes = binary_.layout().g_bytes();
  first_look_.Clear();
  for (uint64_t g_avma : list) first_look_.Add(g_avma, g_bytes);
  first_look_.Read(memory_);
  seen_.clear();
  parked_.clear();
  frames_.clear();
  stacks_.Clear();
  second_look_.Clear();
  uint64_t stack_bytes = 0;
  size_t count = 0;
  for (; count < list.size(); ++count) {
    const std::span<const uint8_t> bytes = first_look_.Bytes(count);
    Seen seen;
    seen.goroutine.g_avma = list[count];
    if (!bytes.empty()) seen.goroutine = Parse(list[count], bytes);
    if (!bytes.empty() && MakesSense(seen.goroutine)) {
      if (!seen.goroutine.is_live()) continue;
      seen.sight = Sight::kRuns;
    }
    if (seen.sight == Sight::kRuns && seen.goroutine.is_parked()) {
      const uint64_t size_bytes = std::min(seen.goroutine.stack_hi - seen.goroutine.sp(), kMaxStackBytes);
      if (stack_bytes + size_bytes > kLookStackBytes) break;
      stack_bytes += size_bytes;
      parked_.push_back(seen_.size());
      stacks_.Add(seen.goroutine.sp(), static_cast<uint32_t>(size_bytes));
      second_look_.Add(list[count], g_bytes);
    }
    seen_.push_back(seen);
  }
  stacks_.Read(memory_);
  // A goroutine that ran in between has a stack which is partly old and partly new.
  second_look_.Read(memory_);
  for (size_t i = 0; i < parked_.size(); ++i) WalkStack(i, &seen_[parked_[i]]);
  return count;
}

void GoroutineLook::WalkStack(size_t parked, Seen* seen) {
  const Goroutine& goroutine = seen->goroutine;
  const std::span<const uint8_t> again = second_look_.Bytes(parked);
  const std::span<const uint8_t> stack = stacks_.Bytes(parked);
  seen->sight = Sight::kMoved;
  if (again.empty() || stack.empty() || Parse(goroutine.g_avma, again) != goroutine) return;
  seen->sight = Sight::kStill;
  walked_.clear();
  seen->end = walker_.Walk({goroutine.pc(), goroutine.sp()}, ReaderOf(goroutine.sp(), stack), &walked_);
  seen->first_frame = frames_.size();
  seen->frame_count = walked_.size();
  frames_.insert(frames_.end(), walked_.begin(), walked_.end());
}

}  // namespace stackd

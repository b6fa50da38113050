// Stacks with frames whose size depends on data, of which rip and rsp alone are known, against libgcc's.
#include <gtest/gtest.h>
#include <unwind.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include "daemon/unwind/testing/data_frames.h"
#include "daemon/unwind/testing/own_process.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

constexpr int kLeaves = 20'000;

_Unwind_Reason_Code AddTruth(_Unwind_Context* context, void* argument) {
  static_cast<std::vector<uint64_t>*>(argument)->push_back(_Unwind_GetIP(context));
  return _URC_NO_REASON;
}

struct Soak {
  std::shared_ptr<const AddressMap> map = OwnAddressMap();
  uint64_t top_avma = OwnStackTop();
  Unwinder unwinder;
  size_t whole = 0, early = 0, wrong = 0, searched = 0;
};
Soak* soak;

[[gnu::noinline]] void Compare(uint64_t rip, uint64_t rsp) {
  OwnStack own;
  own.registers.value[Registers::kRip] = rip;
  own.registers.value[Registers::kRsp] = rsp;
  own.registers.known = 1u << Registers::kRsp | 1u << Registers::kRip;
  own.base_avma = rsp;
  own.words = reinterpret_cast<const uint64_t*>(rsp);
  own.word_count = static_cast<uint32_t>((soak->top_avma - rsp) / 8);
  const NativeStack found = soak->unwinder.Unwind(own.registers, FilteredCopy(own, *soak->map), false, *soak->map);
  std::vector<uint64_t> truth;
  _Unwind_Backtrace(AddTruth, &truth);
  // This function, and the leaf at another instruction.
  const auto callers = std::span(truth).subspan(2);
  std::vector<uint64_t> pcs;
  for (const NativeFrame& frame : std::span(found.frames).subspan(1)) pcs.push_back(frame.pc_avma);
  const bool is_part = pcs.size() <= callers.size() && std::ranges::equal(pcs, callers.first(pcs.size()));
  // libgcc has a zero at the end.
  const bool is_whole = is_part && found.end == StackEnd::kRoot && pcs.size() + 1 >= callers.size();
  soak->searched += std::ranges::count(found.frames, FrameOrigin::kSearch, &NativeFrame::origin);
  if (is_whole) {
    ++soak->whole;
  } else if (is_part && found.end != StackEnd::kRoot) {
    ++soak->early;
  } else if (++soak->wrong <= 5) {
    ADD_FAILURE() << testing::PrintToString(pcs) << " ends " << static_cast<int>(found.end)
                  << "; libgcc: " << testing::PrintToString(truth);
  }
}

TEST(FrameSearch, FindsNoWrongFrameAmongWhatEarlierCallsLeft) {
  Soak here;
  soak = &here;
  RunDataFrames(kLeaves, Compare);
  printf("%d stacks: %zu whole, %zu end early, %zu wrong; %zu frames were searched for\n", kLeaves, here.whole, here.early,
         here.wrong, here.searched);
  EXPECT_EQ(here.wrong, 0u);
  EXPECT_GT(here.searched, 100u);
}

}  // namespace
}  // namespace stackd

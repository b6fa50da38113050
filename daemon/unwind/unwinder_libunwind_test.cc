// The unwinder against libunwind's remote API, on the same copies of stacks.
#include <gtest/gtest.h>

#include "daemon/capture/native_stack.h"
#include "daemon/unwind/testing/own_process.h"
#include "daemon/unwind/testing/remote_unwind.h"
#include "daemon/unwind/testing/workload.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

TEST(Unwinder, FindsTheFramesThatLibunwindFinds) {
  OwnStacks stacks(200, 64 << 20);
  CaptureByTimer(stacks, /*with_truth=*/false, [] { RunWorkload(10); });
  auto map = OwnAddressMap();
  Unwinder unwinder;
  RemoteUnwinder remote(/*caching=*/true);
  size_t frames = 0;
  for (const OwnStack& stack : stacks.stacks()) {
    // Exceptions go through libunwind here, and its hand-written register switch (setcontext) has no tables. The caller of
    // code interrupted there cannot be known, and libunwind guesses.
    const Mapping* interrupted = map->Find(stack.registers.value[Registers::kRip]);
    if (interrupted != nullptr && interrupted->path.find("libunwind") != std::string::npos) continue;
    StackCopy copy = FilteredCopy(stack, *map);
    std::vector<uint64_t> pcs;
    NativeStack unwound = unwinder.Unwind(stack.registers, copy, false, *map);
    for (const NativeFrame& frame : unwound.frames) pcs.push_back(frame.pc_avma);
    EXPECT_EQ(pcs, remote.Unwind(stack.registers, copy, *map));
    EXPECT_EQ(unwound.end, StackEnd::kRoot);
    frames += pcs.size();
  }
  EXPECT_GT(frames, 10 * stacks.stacks().size());
}

}  // namespace
}  // namespace stackd

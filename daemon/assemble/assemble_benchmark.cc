// What does it cost to make a Dump of an unwound capture? It is between the threads' answer and the operator's: tens of
// milliseconds for 10,000 threads with few distinct stacks would be bad.
#include <benchmark/benchmark.h>

#include "daemon/assemble/assemble.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

constexpr int kFrames = 30;
constexpr uint64_t kCode = 0x7f0000000000;

// Arguments: threads, distinct stacks. A third of the frames hold an inlined one.
void BM_AssembleDump(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0)), stack_count = static_cast<int>(state.range(1));
  Capture capture;
  capture.process.id = "1-1";
  std::vector<Mapping> mappings;
  for (int i = 0; i < 100; ++i) {
    Mapping& mapping = mappings.emplace_back();
    mapping.start_avma = kCode + i * 0x10000;
    mapping.end_avma = mapping.start_avma + 0x10000;
    mapping.path = "/usr/lib/x86_64-linux-gnu/lib" + std::to_string(i) + ".so.6";
  }
  // Stacks of threads, with guards.
  for (int i = 0; i < 2 * threads; ++i) {
    Mapping& mapping = mappings.emplace_back();
    mapping.start_avma = 0x7f8000000000 + uint64_t(i) * 0x400000;
    mapping.end_avma = mapping.start_avma + 0x400000;
  }
  capture.map = std::make_shared<const AddressMap>(std::move(mappings));

  std::vector<NamedStack> stacks(stack_count);
  for (int s = 0; s < stack_count; ++s) {
    stacks[s].native.end = StackEnd::kRoot;
    for (int f = 0; f < kFrames; ++f) {
      stacks[s].native.frames.push_back({kCode + f * 0x10000 + s * 8 + 1, 0, FrameOrigin::kCfi});
      SourceLocation location;
      if (f % 3 == 0)
        location.frames.push_back(
            {"std::unique_ptr<Item>::get() const", "/usr/include/c++/12/bits/unique_ptr.h", 173, true});
      location.frames.push_back(
          {"checkout::Class" + std::to_string(s) + "::Method(std::string const&, int)", "/build/src/file.cc", f + 1});
      stacks[s].locations.push_back(std::make_shared<const SourceLocation>(std::move(location)));
    }
  }
  std::vector<int> stack_of_thread;
  for (int i = 0; i < threads; ++i) {
    ThreadCapture& thread = capture.threads.emplace_back();
    thread.tid = 1000 + i;
    thread.name = "worker";
    thread.status = ThreadStatus::kCaptured;
    thread.has_stack = true;
    thread.pause_ns = 10'000 + i;
    thread.cpu_ns = 1'000 * i;
    stack_of_thread.push_back(i % stack_count);
    thread.registers.value[Registers::kRip] = stacks[i % stack_count].native.frames[0].pc_avma;
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        AssembleDump(capture, stack_of_thread, stacks, [](const Module&) { return SymbolQuality::kDwarf; }, "d1"));
  }
}
BENCHMARK(BM_AssembleDump)
    ->Args({1, 1})
    ->Args({1000, 10})
    ->Args({1000, 92})
    ->Args({1000, 1000})
    ->Args({10000, 10})
    ->Args({10000, 10000})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace stackd

BENCHMARK_MAIN();

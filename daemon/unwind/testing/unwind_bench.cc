// How long does a frame take, and how long does the first stack wait for a module's table? Above 50 ns a frame, or 20 ms
// per MB of .eh_frame, something is broken.
#include <benchmark/benchmark.h>
#include <fcntl.h>

#include "daemon/unwind/testing/own_process.h"
#include "daemon/unwind/testing/remote_unwind.h"
#include "daemon/unwind/testing/workload.h"
#include "daemon/unwind/unwind_table.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

struct Subject {
  OwnStacks stacks{500, 64 << 20};
  std::shared_ptr<const AddressMap> map;
  std::vector<StackCopy> copies;
};

const Subject& TheSubject() {
  static const Subject* subject = [] {
    auto* made = new Subject;
    CaptureByTimer(made->stacks, /*with_truth=*/false, [] { RunWorkload(10); });
    made->map = OwnAddressMap();
    for (const OwnStack& stack : made->stacks.stacks()) made->copies.push_back(FilteredCopy(stack, *made->map));
    return made;
  }();
  return *subject;
}

// Runs `unwind(registers, copy)`, which gives the number of frames, over all stacks; reports the time per frame.
void UnwindAll(benchmark::State& state, auto unwind) {
  const Subject& subject = TheSubject();
  size_t frames = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < subject.copies.size(); ++i) {
      frames += unwind(subject.stacks.stacks()[i].registers, subject.copies[i]);
    }
  }
  auto count = static_cast<double>(frames);
  state.counters["frame"] = benchmark::Counter(count, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["frames/stack"] = count / static_cast<double>(state.iterations() * subject.copies.size());
}

void BM_Unwind_Warm(benchmark::State& state) {
  Unwinder unwinder;
  UnwindAll(state, [&](const Registers& registers, const StackCopy& copy) {
    return unwinder.Unwind(registers, copy, false, *TheSubject().map).frames.size();
  });
}
BENCHMARK(BM_Unwind_Warm);

// As in a process seen for the first time whose modules are known: each stack meets an empty rule cache.
void BM_Unwind_NewMap(benchmark::State& state) {
  Unwinder unwinder;
  std::vector<AddressMap> maps;
  for (int i = 0; i < 2; ++i) maps.emplace_back(TheSubject().map->mappings());
  size_t turn = 0;
  UnwindAll(state, [&](const Registers& registers, const StackCopy& copy) {
    return unwinder.Unwind(registers, copy, false, maps[turn++ % 2]).frames.size();
  });
}
BENCHMARK(BM_Unwind_NewMap);

void BM_Unwind_Libunwind(benchmark::State& state) {
  RemoteUnwinder unwinder(/*caching=*/state.range(0) != 0);
  UnwindAll(state, [&](const Registers& registers, const StackCopy& copy) {
    return unwinder.Unwind(registers, copy, *TheSubject().map).size();
  });
}
BENCHMARK(BM_Unwind_Libunwind)->ArgName("caching")->Arg(0)->Arg(1);

void BM_CompileTable(benchmark::State& state, const char* path) {
  auto module = Module::Open(Fd(open(path, O_RDONLY)), path);
  const Section* section = module ? (*module)->FindSection(".eh_frame") : nullptr;
  if (section == nullptr) {
    state.SkipWithError("not installed");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(UnwindTable::Compile(**module));
  double mega_bytes = static_cast<double>(section->size_bytes) / 1e6 * static_cast<double>(state.iterations());
  state.counters["MB"] = benchmark::Counter(mega_bytes, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(BM_CompileTable, libc, "/lib/x86_64-linux-gnu/libc.so.6");
BENCHMARK_CAPTURE(BM_CompileTable, libcrypto, "/usr/lib/x86_64-linux-gnu/libcrypto.so.3");
BENCHMARK_CAPTURE(BM_CompileTable, libLLVM14, "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stackd

BENCHMARK_MAIN();

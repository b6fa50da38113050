// What does a dump cost on its way to the disk? Above 3 ms for 1,000 threads, continuous dumps would starve the daemon.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "daemon/base/clock.h"
#include "daemon/modules/address_map.h"
#include "daemon/store/dump_store.h"
#include "daemon/store/raw_capture.h"

namespace stackd {
namespace {

// Threads of a pool: about 150 words kept of 500, from few distinct values per thread, as call chains repeat.
Capture MakeCapture(int threads) {
  Capture capture;
  std::mt19937_64 random(7);
  std::vector<uint64_t> chain(100);
  for (uint64_t& pc : chain) pc = 0x7f0000000000 + random() % (1 << 21);
  for (int i = 0; i < threads; ++i) {
    ThreadCapture& thread = capture.threads.emplace_back();
    thread.tid = 1000 + i;
    thread.name = "worker";
    thread.status = ThreadStatus::kCaptured;
    thread.has_stack = true;
    const uint64_t base_avma = 0x7f8000000000 + uint64_t(i) * 0x801000;
    std::vector<uint64_t> masks(8), words;
    for (uint32_t word = 0; word < 500; ++word) {
      if ((word * 2654435761u >> 16) % 10 >= 3) continue;
      masks[word / 64] |= 1ull << (word % 64);
      words.push_back(words.size() % 3 == 0 ? base_avma + word * 8 + 64 : chain[words.size() % chain.size()]);
    }
    thread.stack = StackCopy(base_avma, 500, std::move(masks), std::move(words));
    thread.registers.value[Registers::kRip] = chain[0];
    thread.registers.value[Registers::kRsp] = base_avma + 128;
  }
  std::vector<Mapping> mappings;
  for (int i = 0; i < 2 * threads; ++i) {
    Mapping& mapping = mappings.emplace_back();
    mapping.start_avma = 0x7f8000000000 + uint64_t(i) * 0x400800;
    mapping.end_avma = mapping.start_avma + 0x400000;
  }
  capture.map = std::make_shared<const AddressMap>(std::move(mappings));
  return capture;
}

v1::Dump MakeDump(int threads, int stacks, int number) {
  v1::Dump dump;
  dump.set_name("processes/1-1/dumps/d" + std::to_string(number));
  dump.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond);
  for (int s = 0; s < stacks; ++s) {
    v1::Stack* stack = dump.add_stacks();
    for (int f = 0; f < 30; ++f) {
      v1::Frame* frame = stack->add_frames();
      frame->set_function("ns::Class" + std::to_string(s) + "<std::string>::Method" + std::to_string(f) +
                          "(int, char const*)");
      frame->set_file("/build/src/component/file" + std::to_string(f) + ".cc");
      frame->set_line(100 + f);
      frame->set_module("checkout");
      frame->set_address("0x7f12345678" + std::to_string(f));
      frame->set_module_offset("0x12345" + std::to_string(f));
    }
    *dump.add_groups()->mutable_stack() = *stack;
  }
  for (int i = 0; i < threads; ++i) {
    v1::Thread* thread = dump.add_threads();
    thread->set_tid(1000 + i);
    thread->set_name("worker");
    thread->set_status(v1::Thread::CAPTURED);
    thread->set_state("in a system call (futex)");
    thread->mutable_cpu_time()->set_nanos(1000 * i);
    thread->mutable_pause()->set_nanos(10'000 + i);
    thread->set_stack(i % stacks);
    dump.mutable_groups(i % stacks)->add_tids(1000 + i);
  }
  return dump;
}

// On a disk, not in memory.
class Folder {
 public:
  Folder() { std::filesystem::create_directory(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string File() const { return path_ / "store.db"; }

 private:
  const std::filesystem::path path_ = "/var/tmp/store_benchmark-" + std::to_string(getpid());
};

void BM_SerializeRaw(benchmark::State& state) {
  const Capture capture = MakeCapture(static_cast<int>(state.range(0)));
  size_t size_bytes = 0;
  for (auto _ : state) size_bytes = SerializeRaw(capture).size();
  state.counters["bytes"] = static_cast<double>(size_bytes);
}
BENCHMARK(BM_SerializeRaw)->Arg(1)->Arg(1000)->Unit(benchmark::kMicrosecond);

void BM_ParseRaw(benchmark::State& state) {
  const std::string raw = SerializeRaw(MakeCapture(static_cast<int>(state.range(0))));
  for (auto _ : state) benchmark::DoNotOptimize(ParseRaw(raw));
}
BENCHMARK(BM_ParseRaw)->Arg(1000)->Unit(benchmark::kMicrosecond);

void BM_PutRaw(benchmark::State& state) {
  const Folder folder;
  auto store = DumpStore::Open({.file = folder.File()}).value();
  const std::string raw = SerializeRaw(MakeCapture(static_cast<int>(state.range(0))));
  v1::Dump header = MakeDump(0, 0, 0);
  int number = 0;
  for (auto _ : state) {
    header.set_name("processes/1-1/dumps/d" + std::to_string(number++));
    if (!store->PutRaw(header, raw)) state.SkipWithError("PutRaw failed");
  }
  state.counters["stored_bytes"] = static_cast<double>(store->bytes()) / static_cast<double>(store->dump_count());
}
BENCHMARK(BM_PutRaw)->Arg(1)->Arg(1000)->Unit(benchmark::kMicrosecond);

// Arguments: threads, distinct stacks.
void BM_Put(benchmark::State& state) {
  const Folder folder;
  auto store = DumpStore::Open({.file = folder.File()}).value();
  const auto dump =
      std::make_shared<v1::Dump>(MakeDump(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), 0));
  int number = 0;
  for (auto _ : state) {
    dump->set_name("processes/1-1/dumps/d" + std::to_string(number++));
    auto packed = DumpStore::Pack(dump);
    if (!packed || !store->Put(std::move(*packed))) state.SkipWithError("Put failed");
  }
  state.counters["stored_bytes"] = static_cast<double>(store->bytes()) / static_cast<double>(store->dump_count());
  state.counters["bytes"] = static_cast<double>(dump->ByteSizeLong());
}
BENCHMARK(BM_Put)
    ->Args({1, 1})
    ->Args({1000, 20})
    ->Args({1000, 92})
    ->Args({1000, 1000})
    ->Args({10000, 20})
    ->Unit(benchmark::kMicrosecond);

// A storm of equal crashes: raw capture, finished dump, count, and the removal of the dump between the first and the last.
// Argument: threads of each process.
void BM_PutAnEqualCrash(benchmark::State& state) {
  const Folder folder;
  auto store = DumpStore::Open({.file = folder.File()}).value();
  const int threads = static_cast<int>(state.range(0));
  const std::string raw = SerializeRaw(MakeCapture(threads));
  const auto dump = std::make_shared<v1::Dump>(MakeDump(threads, std::min(threads, 20), 0));
  dump->set_trigger(v1::Dump::CRASH);
  dump->mutable_process()->set_display_name("checkout");
  v1::Crash* crash = dump->mutable_crash();
  crash->set_explanation("null dereference in ns::Class0<std::string>::Method0(int, char const*)");
  crash->set_fingerprint("0123456789abcdef0123456789abcdef");
  for (const v1::Frame& frame : dump->stacks(0).frames()) {
    crash->add_fingerprint_frames()->set_function(frame.function());
  }
  v1::Dump header;
  header.set_trigger(v1::Dump::CRASH);
  *header.mutable_create_time() = dump->create_time();
  int number = 0;
  std::vector<double> held_us;
  for (auto _ : state) {
    dump->set_name("processes/1-1/dumps/d" + std::to_string(number));
    crash->set_id(std::to_string(number++));
    header.set_name(dump->name());
    header.mutable_crash()->set_id(crash->id());
    const int64_t begin_ns = MonotonicNs();
    const bool raw_stored = store->PutRaw(header, raw).has_value();
    // Until here the process that crashes is held.
    held_us.push_back(static_cast<double>(MonotonicNs() - begin_ns) / 1000);
    auto packed = DumpStore::Pack(dump);
    if (!raw_stored || !packed || !store->Put(std::move(*packed))) state.SkipWithError("Put failed");
  }
  std::ranges::sort(held_us);
  state.counters["held_us_p50"] = held_us[held_us.size() / 2];
  state.counters["held_us_p99"] = held_us[held_us.size() * 99 / 100];
  state.counters["held_us_max"] = held_us.back();
  state.counters["file_bytes"] = static_cast<double>(std::filesystem::file_size(folder.File()));
  state.counters["stored_bytes"] = static_cast<double>(store->bytes());
}
BENCHMARK(BM_PutAnEqualCrash)->Arg(1)->Arg(20)->Arg(1000)->Unit(benchmark::kMicrosecond);

void BM_Get(benchmark::State& state) {
  const Folder folder;
  auto store = DumpStore::Open({.file = folder.File()}).value();
  const v1::Dump dump = MakeDump(1000, 20, 0);
  if (!store->Put(dump)) state.SkipWithError("Put failed");
  for (auto _ : state) benchmark::DoNotOptimize(store->Get(dump.name()));
}
BENCHMARK(BM_Get)->Unit(benchmark::kMicrosecond);

void BM_FindTheLast(benchmark::State& state) {
  const Folder folder;
  auto store = DumpStore::Open({.file = folder.File()}).value();
  const v1::Dump dump = MakeDump(1000, 20, 0);
  if (!store->Put(dump)) state.SkipWithError("Put failed");
  for (auto _ : state) benchmark::DoNotOptimize(store->Find(dump.name()));
}
BENCHMARK(BM_FindTheLast)->Unit(benchmark::kMicrosecond);

void BM_ListAPage(benchmark::State& state) {
  const Folder folder;
  auto store = DumpStore::Open({.file = folder.File()}).value();
  for (int i = 0; i < 1000; ++i) {
    if (!store->Put(MakeDump(1, 1, i))) state.SkipWithError("Put failed");
  }
  for (auto _ : state) benchmark::DoNotOptimize(store->List({}));
}
BENCHMARK(BM_ListAPage)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace stackd

BENCHMARK_MAIN();

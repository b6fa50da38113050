#include "daemon/testing/fake_stages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "daemon/base/clock.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

std::unique_ptr<FakeStages> g_fakes;

std::shared_ptr<const AddressMap> FakeMap() {
  auto module = Module::Open(Fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), "/bin/fake");
  Mapping mapping{.start_avma = kFakeBias,
                  .end_avma = kFakeBias + (1 << 20),
                  .file_offset = 0,
                  .readable = true,
                  .writable = false,
                  .executable = true,
                  .path = "/bin/fake",
                  .module = module.value(),
                  .bias = kFakeBias};
  return std::make_shared<AddressMap>(std::vector<Mapping>{mapping});
}

}  // namespace

FakeStages& ResetFakes() {
  g_fakes = std::make_unique<FakeStages>();
  return *g_fakes;
}

FakeStages& Fakes() { return *g_fakes; }

ProcessDescription FakeProcess(int pid, const std::string& name) {
  return {.id = std::to_string(pid) + "-100",
          .pid = pid,
          .abi_version = 1,
          .display_name = name,
          .executable = "/bin/" + name,
          .argv0 = name,
          .hostname = "host",
          .start_wall_ns = 1'700'000'000'000'000'000,
          .connect_wall_ns = 1'700'000'000'000'000'000 + pid,
          .thread_count = 1};
}

std::shared_ptr<Capture> FakeCapture(int pid, const std::vector<std::vector<uint64_t>>& stacks) {
  static const std::shared_ptr<const AddressMap> map = FakeMap();
  auto capture = std::make_shared<Capture>();
  capture->process = FakeProcess(pid, "fake");
  capture->begin_wall_ns = WallNs();
  capture->map = map;
  for (const std::vector<uint64_t>& pcs : stacks) {
    ThreadCapture thread;
    thread.tid = pid + static_cast<int>(capture->threads.size());
    thread.name = "worker";
    thread.status = ThreadStatus::kCaptured;
    thread.has_stack = !pcs.empty();
    if (thread.has_stack) {
      thread.registers.value[Registers::kRip] = pcs[0];
      std::vector<uint64_t> words(pcs.begin() + 1, pcs.end());
      uint64_t mask = words.empty() ? 0 : ~0ull >> (64 - words.size());
      thread.stack = StackCopy(0x7000, static_cast<uint32_t>(words.size()),
                               words.empty() ? std::vector<uint64_t>() : std::vector<uint64_t>{mask}, words);
    }
    capture->threads.push_back(std::move(thread));
  }
  return capture;
}

std::unique_ptr<Collector> FakeCollector() { return std::move(*Collector::Start({})); }

// Collector: says and does what the test put into Fakes().

struct Collector::State {};

Collector::Collector(std::unique_ptr<State> state) : state_(std::move(state)) {}
Collector::~Collector() = default;

Result<std::unique_ptr<Collector>> Collector::Start(CollectorOptions) {
  return std::unique_ptr<Collector>(new Collector(std::make_unique<State>()));
}

std::vector<ProcessDescription> Collector::Processes() const {
  std::lock_guard lock(Fakes().mutex);
  return Fakes().processes;
}

Result<std::shared_ptr<Capture>> Collector::CaptureProcess(const std::string&, const CaptureRequest& request) {
  ++Fakes().captures;
  std::function<Result<std::shared_ptr<Capture>>(const CaptureRequest&)> capture;
  {
    std::lock_guard lock(Fakes().mutex);
    capture = Fakes().capture;
  }
  return capture(request);
}

ProcessActivity Collector::ReadActivity(const std::string&) const {
  std::lock_guard lock(Fakes().mutex);
  return Fakes().activity;
}

Result<std::shared_ptr<Capture>> Collector::Outline(const std::string& process_id) const {
  return Error(Code::kNotFound, "no process is " + process_id);
}

void Collector::ConfirmWaits(const std::string&, const LookAtLocks&, int64_t, Capture*) {}

bool Collector::ReadPerfMap(const std::string&, int64_t, std::function<void(const Fd&)> read) const {
  ++Fakes().perf_maps_read;
  std::lock_guard lock(Fakes().mutex);
  if (Fakes().perf_map.empty()) return !Fakes().perf_map_is_late;
  Fd file(memfd_create("perf-1.map", MFD_CLOEXEC));
  if (write(file.get(), Fakes().perf_map.data(), Fakes().perf_map.size()) > 0) read(file);
  return true;
}

void Collector::SayDumpIsRead(const std::string&) {}

bool Collector::HurriesCrashes() const { return Fakes().hurries_crashes; }

void Collector::OnDumpRequest(std::function<void(const OwnDumpRequest&)>) {}

std::map<std::string, int64_t> Collector::Counters() const { return {{"ring_records", 7}}; }

RingUsage Collector::Rings() const { return {}; }

std::vector<std::string> Collector::Problems() const { return {}; }

// Unwinder: the words of the stack copy are the return addresses.

struct Unwinder::State {};

Unwinder::Unwinder() = default;
Unwinder::~Unwinder() = default;

NativeStack Unwinder::Unwind(const Registers& registers, const StackCopy& stack, bool, const AddressMap&, JitCode*) {
  NativeStack result{.frames = {{registers.value[Registers::kRip], 0, FrameOrigin::kRegisters}}, .end = StackEnd::kRoot};
  for (uint64_t word : stack.words()) result.frames.push_back({word, 0, FrameOrigin::kCfi});
  return result;
}

// Symbolizer: the function at svma 0x20 is "f20".

struct Symbolizer::State {};

Symbolizer::Symbolizer(SymbolizerOptions) {}
Symbolizer::~Symbolizer() = default;

std::vector<std::shared_ptr<const SourceLocation>> Symbolizer::Symbolize(std::span<const AddressQuery> queries, int64_t) {
  std::vector<std::shared_ptr<const SourceLocation>> result;
  std::lock_guard lock(Fakes().mutex);
  for (const AddressQuery& query : queries) {
    Fakes().symbolized.push_back(query);
    if (Fakes().unnamed) {
      result.push_back(std::make_shared<const SourceLocation>(SourceLocation{{}, "no symbols"}));
      continue;
    }
    char name[32];
    snprintf(name, sizeof(name), "f%llx", static_cast<unsigned long long>(query.svma));
    result.push_back(std::make_shared<const SourceLocation>(SourceLocation{{{name, "fake.c", 1, false}}, ""}));
  }
  return result;
}

void Symbolizer::Forget(const Module&) {}

std::vector<std::string> Symbolizer::NameVariables(std::span<const AddressQuery> queries, int64_t) {
  return std::vector<std::string>(queries.size());
}

SymbolQuality Symbolizer::Quality(const Module&) const { return SymbolQuality::kDwarf; }

int64_t Symbolizer::worker_restarts() const { return 0; }
int64_t Symbolizer::cache_hits() const { return 0; }
int64_t Symbolizer::cache_misses() const { return 0; }

}  // namespace stackd

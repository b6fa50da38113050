#include "daemon/managed/hotspot/hotspot_reader.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"
#include "daemon/managed/hotspot/code_cache.h"
#include "daemon/managed/hotspot/image_symbols.h"
#include "daemon/managed/hotspot/java_frames.h"
#include "daemon/managed/hotspot/java_threads.h"
#include "daemon/managed/hotspot/known_vms.h"
#include "daemon/managed/hotspot/layout.h"
#include "daemon/managed/hotspot/locks.h"
#include "daemon/managed/hotspot/methods.h"
#include "daemon/managed/hotspot/process_memory.h"
#include "daemon/managed/hotspot/vm_structs.h"
#include "daemon/modules/address_map.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

using namespace hotspot;

constexpr size_t kMaxVersionBytes = 128;

const Mapping* FindVm(const AddressMap& map) {
  for (const Mapping& mapping : map.mappings()) {
    if (mapping.file_offset != 0) continue;
    std::string_view path = mapping.path;
    constexpr std::string_view kDeleted = " (deleted)";
    if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
    if (path.ends_with("/libjvm.so")) return &mapping;
  }
  return nullptr;
}

const ManagedTrace* TraceOf(const ThreadCapture& thread) {
  const auto trace = std::ranges::find(thread.traces, uint32_t{STACKD_RUNTIME_HOTSPOT}, &ManagedTrace::runtime);
  return trace == thread.traces.end() ? nullptr : &*trace;
}

// What there was no room for is said by one more.
bool IsTraceWhole(const ThreadCapture& thread) {
  return TraceOf(thread) != nullptr && std::ranges::none_of(thread.traces, [](const ManagedTrace& trace) {
           return trace.runtime == STACKD_RUNTIME_HOTSPOT && trace.status != STACKD_WALK_WHOLE;
         });
}

bool HasJava(const ThreadCapture& thread, const CodeCache& code) {
  if (!thread.has_stack) return false;
  const auto holds = [&](uint64_t word) { return code.Holds(word); };
  return holds(thread.registers.value[Registers::kRip]) || std::ranges::any_of(thread.stack.words(), holds);
}

VmKey KeyOf(const Capture& capture, const Mapping& libjvm) {
  return {capture.process.id, capture.process.connect_wall_ns, libjvm.start_avma};
}

// The version is told where the rest is not.
Result<KnownVm> Describe(const Mapping& libjvm, ProcessMemory* memory, std::string* version) {
  auto symbols = ImageSymbols::Open(memory, libjvm.start_avma);
  if (!symbols) return Error(Code::kFailedPrecondition, "the symbols of libjvm cannot be read");
  auto structs = VmStructs::Read(memory, *symbols);
  if (!structs) return Error(Code::kFailedPrecondition, "libjvm has no description of its structures");
  if (const auto text_avma = structs->Address("Abstract_VM_Version._s_vm_release")) {
    *version = ToValidUtf8(memory->Text(memory->Word(*text_avma).value_or(0), kMaxVersionBytes).value_or(""));
  }
  auto layout = MakeLayout(memory, *structs);
  if (!layout) return std::unexpected(std::move(layout.error()));
  return KnownVm{*layout, *version};
}

// What a capture needs of one VM.
class VmReader {
 public:
  VmReader(const RuntimeInput& input, KnownVms* known_vms, ManagedFacts* facts)
      : input_(input), memory_(*input.memory), known_vms_(known_vms), facts_(facts) {}

  // The text says why there are no frames; empty: there are.
  std::string Read(const Mapping& libjvm, std::string* version) {
    const VmKey key = KeyOf(input_.capture, libjvm);
    std::shared_ptr<const KnownVm> vm = known_vms_->Find(key);
    const bool is_new = vm == nullptr;
    if (is_new) {
      auto described = Describe(libjvm, &memory_, version);
      if (!described) return described.error().message;
      vm = std::make_shared<const KnownVm>(std::move(*described));
    }
    *version = vm->version;
    auto code = CodeCache::Open(&memory_, vm->layout);
    if (!code) return "the VM has no code cache yet";
    // Not before: its tables may not have been whole.
    if (is_new) known_vms_->Keep(key, vm);
    ReadFrames(vm->layout, &*code);
    if (!input_.frames_only) AddLocks(input_, vm->layout, *code, &memory_, facts_);
    return "";
  }

 private:
  void ReadFrames(const Layout& layout, CodeCache* code) {
    const std::vector<JavaThread> threads = ReadJavaThreads(&memory_, layout);
    std::unordered_map<int32_t, const JavaThread*> by_tid;
    for (const JavaThread& thread : threads) by_tid.emplace(thread.tid, &thread);
    Methods methods(&memory_, layout);
    Unwinder unwinder;
    FrameLimits limits = {.deadline_ns = input_.deadline_ns};
    size_t left_out = 0;
    for (const ThreadCapture& thread : input_.capture.threads) {
      if (!HasJava(thread, *code)) continue;
      if (MonotonicNs() >= input_.deadline_ns) {
        ++left_out;
        continue;
      }
      const auto java = by_tid.find(thread.tid);
      limits.is_late = false;
      JavaFrames frames(&memory_, layout, code, &methods, &limits,
                        {.rsp = thread.registers.value[Registers::kRsp],
                         .trace = TraceOf(thread),
                         .is_trace_whole = IsTraceWhole(thread),
                         .continuation_entry_avma = java == by_tid.end() ? 0 : java->second->continuation_entry_avma});
      const NativeStack native =
          unwinder.Unwind(thread.registers, thread.stack, thread.stack_truncated, *input_.capture.map, &frames);
      frames.Collect(native, &facts_->threads[thread.tid]);
      if (limits.is_late) ++left_out;
    }
    if (left_out != 0) {
      facts_->notes.push_back("time was up before all Java frames of " + std::to_string(left_out) +
                              " threads were looked for");
    }
    if (limits.is_full) facts_->notes.push_back("some Java frames have no names: those of the others take 64 MiB");
  }

  const RuntimeInput& input_;
  ProcessMemory memory_;
  KnownVms* known_vms_;
  ManagedFacts* facts_;
};

}  // namespace

HotSpotReader::HotSpotReader() : known_vms_(std::make_unique<KnownVms>()) {}
HotSpotReader::~HotSpotReader() = default;

void HotSpotReader::Read(const RuntimeInput& input, ManagedFacts* facts) {
  if (input.capture.map == nullptr) return;
  const Mapping* libjvm = FindVm(*input.capture.map);
  if (libjvm == nullptr) return;
  RuntimeDescription description;
  description.language = Language::kJava;
  std::string version;
  if (input.memory == nullptr || !input.memory->has_memory()) {
    description.problem = "its memory cannot be read: Java frames have no names, and what is behind them may be missing";
  } else {
    description.problem = VmReader(input, known_vms_.get(), facts).Read(*libjvm, &version);
  }
  description.name = version.empty() ? "HotSpot" : "HotSpot " + version;
  facts->runtimes.push_back(std::move(description));
}

void HotSpotReader::ReadWaits(const WaitInput& input, std::vector<ManagedWait>* waits) {
  const Mapping* libjvm = input.capture.map == nullptr ? nullptr : FindVm(*input.capture.map);
  if (libjvm == nullptr || !input.memory.has_memory()) return;
  ProcessMemory memory(input.memory);
  const VmKey key = KeyOf(input.capture, *libjvm);
  std::shared_ptr<const KnownVm> vm = known_vms_->Find(key);
  if (vm == nullptr) {
    std::string version;
    auto described = Describe(*libjvm, &memory, &version);
    if (!described || !CodeCache::Open(&memory, described->layout)) return;
    vm = std::make_shared<const KnownVm>(std::move(*described));
    known_vms_->Keep(key, vm);
  }
  std::ranges::move(ReadLockWaits(input.sleeping, input.deadline_ns, vm->layout, &memory), std::back_inserter(*waits));
}

}  // namespace stackd

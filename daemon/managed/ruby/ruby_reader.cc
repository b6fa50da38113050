#include "daemon/managed/ruby/ruby_reader.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/managed/lined_frames.h"
#include "daemon/managed/ruby/ruby_objects.h"
#include "daemon/managed/ruby/ruby_waits.h"
#include "daemon/modules/address_map.h"
#include "stackd/ruby_trace.h"

namespace stackd {
namespace {

constexpr std::string_view kName = "Ruby ";

std::string VersionName(uint64_t version) {
  if (version == 0) return "Ruby";
  return std::string(kName) + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// Returns 0 for what is no name that VersionName makes.
uint64_t VersionIn(std::string_view name) {
  if (!name.starts_with(kName)) return 0;
  uint64_t version = 0, part = 0;
  for (const char character : name.substr(kName.size())) {
    if (character != '.' && (character < '0' || character > '9' || part > 99)) return 0;
    if (character == '.') {
      version = version * 100 + std::exchange(part, 0);
    } else {
      part = part * 10 + static_cast<uint64_t>(character - '0');
    }
  }
  return version * 100 + part;
}

std::string FunctionName(const ManagedSymbol& symbol) {
  return symbol.function.empty() ? "(anonymous)" : std::string(symbol.function);
}

constexpr LinedRuntime kRuby = {
    .runtime = STACKD_RUNTIME_RUBY,
    .language = Language::kRuby,
    .interpreter_function = "rb_vm_exec",  // to 3.1, and only where the agent finds no place
    .version_name = VersionName,
    .function_name = FunctionName,
    .unknown_version = "this stackd does not know the frames of this version or build: its stacks show C functions alone",
};

// Adds what the threads' walks say of locks and names. Returns rb_thread_t by tid.
std::map<int32_t, uint64_t> AddThreads(const Capture& capture, const RubyObjects& objects, ManagedFacts* facts) {
  std::map<int32_t, uint64_t> threads;
  for (const ThreadCapture& thread : capture.threads) {
    for (const ManagedTrace& trace : thread.traces) {
      if (trace.runtime != STACKD_RUNTIME_RUBY || trace.instance_avma == 0) continue;
      const uint64_t thread_avma = objects.ThreadOf(trace.instance_avma);
      if (thread_avma == 0 || objects.TidOf(thread_avma) != thread.tid) continue;
      threads[thread.tid] = thread_avma;
      if (std::string name = objects.NameOf(thread_avma); !name.empty()) facts->threads[thread.tid].name = std::move(name);
    }
  }
  return threads;
}

void MarkHolders(const Capture& capture, ManagedFacts* facts) {
  for (const ThreadCapture& thread : capture.threads) {
    const auto holds = [](const ManagedTrace& trace) {
      return trace.runtime == STACKD_RUNTIME_RUBY && (trace.flags & STACKD_MANAGED_HOLDS_GIL) != 0;
    };
    if (std::ranges::any_of(thread.traces, holds)) facts->threads[thread.tid].holds_gil = true;
  }
}

const RubyOffsets* OffsetsIn(const std::vector<RuntimeDescription>& runtimes) {
  const auto ruby = std::ranges::find(runtimes, Language::kRuby, &RuntimeDescription::language);
  return ruby == runtimes.end() ? nullptr : OffsetsOfRuby(VersionIn(ruby->name));
}

// No thread has been asked yet: the library is named for its version, as libruby-3.1.so.3.1.2.
const RubyOffsets* OffsetsIn(const AddressMap& map) {
  constexpr std::string_view kLibrary = "/libruby", kBeforeVersion = ".so.";
  for (const Mapping& mapping : map.mappings()) {
    const std::string_view path = mapping.path;
    const size_t name = path.rfind(kLibrary), version = path.rfind(kBeforeVersion);
    if (name == std::string_view::npos || version == std::string_view::npos || version < name) continue;
    return OffsetsOfRuby(VersionIn(std::string(kName) + std::string(path.substr(version + kBeforeVersion.size()))));
  }
  return nullptr;
}

}  // namespace

void RubyReader::Read(const RuntimeInput& input, ManagedFacts* facts) {
  AddLinedFrames(input, kRuby, facts);
  MarkHolders(input.capture, facts);
  const RubyOffsets* offsets = OffsetsIn(facts->runtimes);
  if (offsets == nullptr || input.memory == nullptr || input.frames_only || MonotonicNs() >= input.deadline_ns) return;
  const RubyObjects objects(*input.memory, *offsets, input.deadline_ns);
  const auto threads = AddThreads(input.capture, objects, facts);
  std::ranges::move(FindRubyWaits(threads, input.capture, objects), std::back_inserter(facts->waits));
}

void RubyReader::ReadWaits(const WaitInput& input, std::vector<ManagedWait>* waits) {
  const RubyOffsets* offsets = OffsetsIn(input.capture.managed.runtimes);
  if (offsets == nullptr && input.capture.map != nullptr) offsets = OffsetsIn(*input.capture.map);
  if (offsets == nullptr) return;
  std::ranges::move(ReadRubyWaits(input, RubyObjects(input.memory, *offsets, input.deadline_ns)),
                    std::back_inserter(*waits));
}

}  // namespace stackd

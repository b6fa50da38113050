#include "daemon/analyze/crash/memory_place.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "daemon/base/printable.h"

namespace stackd {
namespace {

// Farther away from a mapping, an address has nothing to do with it.
constexpr uint64_t kNearBytes = 4096;

uint64_t StackPointer(const ThreadCapture& thread) { return thread.registers.value[Registers::kRsp]; }

bool HasNoPermission(const Mapping& mapping) { return !mapping.readable && !mapping.writable && !mapping.executable; }

std::string Counted(uint64_t count, std::string_view unit) {
  return std::to_string(count) + " " + std::string(unit) + (count == 1 ? "" : "s");
}

}  // namespace

std::string BytesInWords(uint64_t bytes) {
  constexpr uint64_t kKib = 1024, kMib = kKib * 1024, kGib = kMib * 1024;
  if (bytes < 10 * kKib) return Counted(bytes, "byte");
  char text[48];
  const auto scaled = [&](uint64_t unit, const char* name) {
    const double value = static_cast<double>(bytes) / static_cast<double>(unit);
    snprintf(text, sizeof(text), value < 10 ? "%.1f %s" : "%.0f %s", value, name);
    return text;
  };
  return bytes < kMib ? scaled(kKib, "KiB") : bytes < kGib ? scaled(kMib, "MiB") : scaled(kGib, "GiB");
}

std::string ThreadInWords(const Capture& capture, const ThreadCapture& thread) {
  if (thread.tid == capture.process.pid) return "the main thread";
  const std::string tid = std::to_string(thread.tid);
  if (thread.name.empty()) return "thread " + tid;
  const bool is_one_of_many = std::ranges::count(capture.threads, thread.name, &ThreadCapture::name) > 1;
  return "thread " + PrintableText(thread.name) + (is_one_of_many ? " (tid " + tid + ")" : "");
}

std::string MemoryPlaces::InWords(const Mapping& mapping, uint64_t avma) const {
  std::string_view path = mapping.path;
  if (path.starts_with('/')) return PrintableText(path.substr(path.rfind('/') + 1));
  if (path == "[heap]") return "the heap";
  if (path == "[stack]") return "the stack of the main thread";
  if (path.starts_with('[')) return PrintableText(path);
  if (const ThreadCapture* thread = owners_.Of(mapping, avma)) return "the stack of " + ThreadInWords(capture_, *thread);
  return "anonymous memory";
}

std::string MemoryPlaces::NeighbourInWords(uint64_t avma) const {
  const auto& mappings = map_.mappings();
  const auto above = std::ranges::upper_bound(mappings, avma, {}, &Mapping::start_avma);
  if (above != mappings.begin()) {
    const Mapping& below = *std::prev(above);
    const uint64_t distance_bytes = avma - below.end_avma;
    if (avma >= below.end_avma && distance_bytes < kNearBytes) {
      return (distance_bytes == 0 ? "right" : Counted(distance_bytes, "byte")) + " behind the end of " +
             InWords(below, below.end_avma - 1);
    }
  }
  if (above != mappings.end() && above->start_avma - avma <= kNearBytes) {
    return Counted(above->start_avma - avma, "byte") + " before the begin of " + InWords(*above, above->start_avma);
  }
  return "";
}

const ThreadCapture* MemoryPlaces::ThreadOfGuard(uint64_t avma) const {
  const Mapping* guard = map_.Find(avma);
  if (guard == nullptr || !guard->path.empty()) return nullptr;
  // Where a guard page is part of the stack's mapping, the kernel reports it as not mapped.
  if (guard->writable && capture_.crash && capture_.crash->signal_code == SEGV_MAPERR) {
    return owners_.FirstAbove(*guard, avma);
  }
  if (!HasNoPermission(*guard)) return nullptr;
  const Mapping* stack = map_.Find(guard->end_avma);
  if (stack == nullptr || !stack->writable) return nullptr;
  if (capture_.crash && capture_.crash->stack_start_avma == guard->end_avma) {
    const auto crashed = std::ranges::find(capture_.threads, capture_.crash->tid, &ThreadCapture::tid);
    if (crashed != capture_.threads.end()) return &*crashed;
  }
  return owners_.Of(*stack, stack->start_avma);
}

std::optional<StackBounds> MemoryPlaces::BoundsOfStack(const ThreadCapture& thread, StackBounds known) const {
  if (known.end_avma > known.start_avma) return known;
  const auto& mappings = map_.mappings();
  // Where the stack ran over, the stack pointer is below the mapping, in the guard page or in nothing.
  auto stack = std::ranges::upper_bound(mappings, StackPointer(thread), {}, &Mapping::end_avma);
  if (stack != mappings.end() && HasNoPermission(*stack)) ++stack;
  if (stack == mappings.end() || !stack->writable) return std::nullopt;
  const bool of_no_file = stack->path.empty() || stack->path == "[stack]";
  return of_no_file ? std::optional(StackBounds{stack->start_avma, stack->end_avma}) : std::nullopt;
}

}  // namespace stackd

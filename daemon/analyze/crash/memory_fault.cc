// Loads, stores and jumps that went wrong.
#include <algorithm>
#include <charconv>
#include <csignal>

#include "daemon/analyze/code/fault_instruction.h"
#include "daemon/analyze/crash/memory_place.h"
#include "daemon/analyze/crash/verdict.h"
#include "daemon/analyze/names/function_name.h"
#include "daemon/analyze/names/runtime_frame.h"
#include "daemon/base/printable.h"

namespace stackd {
namespace {

// x86 exceptions (trap_number), and bits of the error code of a page fault (trap_error).
constexpr uint64_t kStackFault = 12, kGeneralProtection = 13, kPageFault = 14;
constexpr uint64_t kWasWrite = 1 << 1, kWasFetch = 1 << 4;

// Linux maps nothing below 64 KiB for ordinary users.
constexpr uint64_t kNullBytes = 64 << 10;
// A negative offset to a null pointer; the kernel has its error values there, and no memory.
constexpr uint64_t kBelowNull = -uint64_t{4096};
constexpr uint64_t kKernelHalf = uint64_t{1} << 63;

// An instruction touches the stack within this distance of the stack pointer: red zone, calls, probes of large frames.
constexpr uint64_t kStackAccessBytes = 4096;
// A stack pointer farther below the stack than the stack is large may have been set wrong. It counts as an overflow only if
// the frame began in the stack, or if the stack is the next memory above.
constexpr uint64_t kLeastOverrunBytes = 1 << 20, kMostOverrunBytes = 1 << 30;

enum class Access { kUnknown, kRead, kWrite, kJump };

Access AccessOf(const CrashScene& scene) {
  const CrashCapture& crash = scene.crash;
  if (crash.trap_number == kPageFault && (crash.trap_error & kWasFetch) != 0) return Access::kJump;
  // Where the processor has no such bit, a fetch is seen by its address.
  if (scene.thread != nullptr && crash.fault_address_avma == scene.rip()) return Access::kJump;
  if (crash.trap_number != kPageFault) return Access::kUnknown;
  return (crash.trap_error & kWasWrite) != 0 ? Access::kWrite : Access::kRead;
}

std::string InWords(Access access) {
  switch (access) {
    case Access::kRead:
      return "read of ";
    case Access::kWrite:
      return "write to ";
    case Access::kJump:
      return "jump to ";
    case Access::kUnknown:
      break;
  }
  return "access to ";
}

// Whether the innermost function was called on this stack, wherever the stack pointer is by now.
bool FrameBeginsIn(const CrashScene& scene, const StackBounds& stack) {
  return scene.frame_begin_avma > stack.start_avma && scene.frame_begin_avma <= stack.end_avma;
}

// Whether `stack` is the first memory above `avma` that can be used at all.
bool IsNextAbove(const CrashScene& scene, uint64_t avma, const StackBounds& stack) {
  const auto& mappings = scene.map.mappings();
  auto above = std::ranges::upper_bound(mappings, avma, {}, &Mapping::end_avma);
  while (above != mappings.end() && !above->readable && !above->writable && !above->executable) ++above;
  return above != mappings.end() && above->start_avma <= stack.start_avma && above->end_avma >= stack.end_avma;
}

bool StackRanOver(const CrashScene& scene, const StackBounds& stack) {
  const uint64_t fault = scene.crash.fault_address_avma, rsp = scene.rsp();
  if (fault >= stack.start_avma || rsp >= stack.start_avma + kStackAccessBytes) return false;
  if (fault + kStackAccessBytes < rsp) return false;
  const uint64_t overrun_bytes = stack.start_avma - fault;
  if (overrun_bytes <= std::max(stack.end_avma - stack.start_avma, kLeastOverrunBytes)) return true;
  return FrameBeginsIn(scene, stack) || (overrun_bytes <= kMostOverrunBytes && IsNextAbove(scene, rsp, stack));
}

// The function that calls itself most often, if the stack is recursion.
std::string Recursion(const v1::Stack* stack) {
  if (stack == nullptr) return "";
  const auto& frames = stack->frames();
  const auto deepest = std::ranges::max_element(frames, {}, &v1::Frame::repeat_count);
  if (deepest == frames.end() || deepest->repeat_count() <= 0) return "";
  // Where another language recurses, its own functions are what the reader knows.
  const auto turn_end = deepest + std::clamp<int64_t>(deepest->repeat_length(), 1, frames.end() - deepest);
  const auto of_runtime = std::find_if(deepest, turn_end, IsOfRuntime);
  const std::string& function = (of_runtime == turn_end ? deepest : of_runtime)->function();
  return function.empty() ? "" : ", by recursion of " + PrintableText(function);
}

std::optional<Verdict> StackOverflow(const CrashScene& scene, const MemoryPlaces& places) {
  if (scene.thread == nullptr) return std::nullopt;
  const auto stack = places.BoundsOfStack(*scene.thread, {scene.crash.stack_start_avma, scene.crash.stack_end_avma});
  if (!stack || !StackRanOver(scene, *stack)) return std::nullopt;
  const std::string begin = "stack overflow of " + ThreadInWords(scene.capture, *scene.thread) + ": ";
  const uint64_t stack_bytes = stack->end_avma - stack->start_avma;
  const uint64_t frame_bytes = (FrameBeginsIn(scene, *stack) ? scene.frame_begin_avma : stack->start_avma) -
                               std::min(scene.rsp(), stack->start_avma);
  if (frame_bytes > stack_bytes) {
    // A main thread's stack grows, up to a limit that nothing here tells.
    const Mapping* mapping = scene.map.Find(stack->end_avma - 1);
    const bool grows = mapping != nullptr && mapping->path == "[stack]";
    return Verdict{v1::Crash::STACK_OVERFLOW, begin + "one frame of " + BytesInWords(frame_bytes) + " in a stack " +
                                                  (grows ? "that had grown to " : "of ") + BytesInWords(stack_bytes)};
  }
  return Verdict{v1::Crash::STACK_OVERFLOW, begin + BytesInWords(stack_bytes) + " are used up" + Recursion(scene.stack)};
}

Verdict NullPointer(uint64_t address, Access access) {
  const auto cause = access == Access::kJump ? v1::Crash::BAD_JUMP : v1::Crash::NULL_DEREFERENCE;
  if (address == 0 && access == Access::kJump) return {cause, "jump to address 0: call of a null function pointer"};
  const std::string begin =
      InWords(access) + "address " + (address == 0 ? "0" : HexOf(address)) + ", which is a null pointer";
  if (address == 0) return {cause, begin};
  return {cause,
          begin + (address < kNullBytes ? " plus " + std::to_string(address) : " minus " + std::to_string(-address))};
}

// Where the stack pointer itself is wrong, whatever it points to is not what went wrong first.
bool StackPointerIsWild(const CrashScene& scene) {
  if (scene.thread == nullptr) return false;
  const uint64_t fault = scene.crash.fault_address_avma, rsp = scene.rsp();
  const bool used_it = fault - (rsp - kStackAccessBytes) < 2 * kStackAccessBytes;
  const Mapping* mapping = scene.map.Find(rsp);
  return used_it && (mapping == nullptr || !mapping->writable);
}

Verdict Unmapped(const CrashScene& scene, const MemoryPlaces& places, Access access) {
  const uint64_t address = scene.crash.fault_address_avma;
  const std::string begin = InWords(access) + "address " + HexOf(address);
  const auto cause = access == Access::kJump ? v1::Crash::BAD_JUMP : v1::Crash::BAD_ADDRESS;
  if (address >= kKernelHalf) return {cause, begin + ", which belongs to the kernel"};
  const std::string neighbour = places.NeighbourInWords(address);
  return {cause, begin + ", where nothing is mapped" + (neighbour.empty() ? "" : ": " + neighbour)};
}

Verdict Mapped(const CrashScene& scene, const Mapping& mapping, const MemoryPlaces& places, Access access) {
  const uint64_t address = scene.crash.fault_address_avma;
  if (access == Access::kJump) {
    return {v1::Crash::BAD_JUMP, "jump to " + HexOf(address) + ", which is no code (" +
                                     (mapping.path.starts_with('/') ? "data of " : "") + places.InWords(mapping, address) +
                                     ")"};
  }
  const std::string begin = InWords(access) + "address " + HexOf(address) + ", ";
  if (const ThreadCapture* thread = places.ThreadOfGuard(address)) {
    return {v1::Crash::PERMISSION, begin + "in the guard page of the stack of " + ThreadInWords(scene.capture, *thread)};
  }
  const std::string place = places.InWords(mapping, address);
  const bool forbids_read = !mapping.readable && !mapping.writable;
  if (forbids_read) return {v1::Crash::PERMISSION, begin + "in memory that allows no access (" + place + ")"};
  if (!mapping.writable && access != Access::kRead) {
    const std::string what = mapping.executable ? "the code of " : "the read-only memory of ";
    return {v1::Crash::PERMISSION, begin + "in " + what + place};
  }
  if (scene.crash.signal_code == SEGV_MAPERR) {
    return {v1::Crash::BAD_ADDRESS, begin + "in " + place + ": a guard page of it, or mapped only since then"};
  }
  return {v1::Crash::PERMISSION, begin + "in " + place + ", which a protection key or a change since then forbids"};
}

// The processor does not say which address it was.
Verdict GeneralProtection(const CrashScene& scene) {
  switch (ReadFaultInstruction(scene.map, scene.rip())) {
    case FaultInstruction::kPrivileged:
      return {v1::Crash::ILLEGAL_INSTRUCTION, "an instruction that only kernels may use"};
    case FaultInstruction::kReturn:
      return {v1::Crash::NON_CANONICAL_ADDRESS,
              "return to an address that cannot exist (non-canonical): the stack was overwritten"};
    case FaultInstruction::kJump:
      return {v1::Crash::NON_CANONICAL_ADDRESS, "jump to an address that cannot exist (non-canonical)"};
    case FaultInstruction::kAligned:
      return {v1::Crash::NON_CANONICAL_ADDRESS,
              "use of an address that is not aligned as the instruction needs it, or that cannot exist (non-canonical)"};
    default:
      return {v1::Crash::NON_CANONICAL_ADDRESS, "use of an address that cannot exist (non-canonical)"};
  }
}

Verdict ShortFile(const CrashScene& scene, const MemoryPlaces& places, Access access) {
  const uint64_t address = scene.crash.fault_address_avma;
  const std::string begin = InWords(access) + "address " + HexOf(address) + ": ";
  const Mapping* mapping = scene.map.Find(address);
  if (mapping == nullptr || !mapping->path.starts_with('/')) {
    const std::string place = mapping == nullptr ? "" : " of " + places.InWords(*mapping, address);
    return {v1::Crash::BUS_ERROR, begin + "the kernel had no memory for this page" + place};
  }
  return {v1::Crash::BUS_ERROR, begin + "the mapped file " + PrintableText(mapping->path) +
                                    " is shorter than its mapping, or its file system is full"};
}

Verdict BusError(const CrashScene& scene, const MemoryPlaces& places) {
  const Access access = AccessOf(scene);
  const std::string what = InWords(access) + "address " + HexOf(scene.crash.fault_address_avma);
  switch (scene.crash.signal_code) {
    case BUS_ADRALN:
      return {v1::Crash::BUS_ERROR, what + ", which is not aligned"};
    case BUS_ADRERR:
      return ShortFile(scene, places, access);
    case BUS_OBJERR:
    case BUS_MCEERR_AR:
    case BUS_MCEERR_AO:
      return {v1::Crash::BUS_ERROR, what + ": the hardware reports failing memory"};
    default:
      return {v1::Crash::BUS_ERROR, what};
  }
}

bool IsLibc(std::string_view module) { return module.starts_with("libc.so") || module.starts_with("libc-2"); }

// The function that the fault is in, and not what the compiler put into it; nullptr if that is not known.
const v1::Frame* InnermostFunction(const CrashScene& scene) {
  if (scene.stack == nullptr) return nullptr;
  const auto& frames = scene.stack->frames();
  const auto own = std::ranges::find_if(frames, [](const v1::Frame& f) { return f.origin() != v1::Frame::INLINED; });
  return own == frames.end() ? nullptr : &*own;
}

// Blames the heap for a fault in malloc and its like: what they keep between the blocks was overwritten before.
Verdict WithHeap(const CrashScene& scene, Verdict verdict) {
  constexpr std::string_view kMayGetBadPointers[] = {
      "free", "cfree", "realloc", "int_free", "int_realloc", "malloc_usable_size", "libc_free", "libc_realloc"};
  constexpr std::string_view kAllocators[] = {"malloc",       "calloc",      "memalign",    "int_malloc",
                                              "int_memalign", "libc_malloc", "libc_calloc", "malloc_consolidate",
                                              "unlink_chunk", "tcache_get",  "tcache_put",  "sysmalloc",
                                              "systrim",      "malloc_trim"};
  if (verdict.cause == v1::Crash::BAD_JUMP || verdict.cause == v1::Crash::STACK_OVERFLOW) return verdict;
  const v1::Frame* innermost = InnermostFunction(scene);
  if (innermost == nullptr || !IsLibc(innermost->module())) return verdict;
  const std::string plain = PlainLibcFunction(innermost->function());
  const std::string_view name = std::string_view(plain).substr(std::min(plain.find_first_not_of('_'), plain.size()));
  if (std::ranges::find(kAllocators, name) != std::end(kAllocators)) {
    return {v1::Crash::HEAP_CORRUPTION,
            "the heap is corrupt, and what wrote over it is unknown: in " + std::string(name) + "(), " + verdict.sentence};
  }
  if (std::ranges::find(kMayGetBadPointers, name) == std::end(kMayGetBadPointers)) return verdict;
  verdict.sentence +=
      ", in " + std::string(name) + "(): the heap is corrupt, or it was given a pointer that is not malloc's";
  return verdict;
}

Verdict ExplainFault(const CrashScene& scene) {
  const CrashCapture& crash = scene.crash;
  if (crash.signal_code == SI_KERNEL) {
    if (crash.trap_number == kStackFault) {
      return {v1::Crash::NON_CANONICAL_ADDRESS,
              "the stack pointer or frame pointer is an address that cannot exist (non-canonical)"};
    }
    if (crash.trap_number == kGeneralProtection) return GeneralProtection(scene);
    return {v1::Crash::BAD_ADDRESS, "a fault that the kernel says no more of"};
  }
  const MemoryPlaces places(scene.capture, scene.map);
  if (crash.signal_number == SIGBUS) return BusError(scene, places);
  if (auto overflow = StackOverflow(scene, places)) return *std::move(overflow);

  const Access access = AccessOf(scene);
  const uint64_t address = crash.fault_address_avma;
  if (StackPointerIsWild(scene) && access != Access::kJump) {
    return {v1::Crash::BAD_ADDRESS, "the stack pointer is wrong: it is " + HexOf(scene.rsp()) + ", where no stack is"};
  }
  if (address < kNullBytes || address >= kBelowNull) return NullPointer(address, access);
  const Mapping* mapping = scene.map.Find(address);
  return mapping == nullptr ? Unmapped(scene, places, access) : Mapped(scene, *mapping, places, access);
}

}  // namespace

std::string HexOf(uint64_t value) {
  char text[2 + 16] = {'0', 'x'};
  return {text, std::to_chars(text + 2, std::end(text), value, 16).ptr};
}

Verdict ExplainMemoryFault(const CrashScene& scene) { return WithHeap(scene, ExplainFault(scene)); }

}  // namespace stackd

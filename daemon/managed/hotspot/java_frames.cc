#include "daemon/managed/hotspot/java_frames.h"

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd::hotspot {
namespace {

// An interpreted frame, in words from its frame pointer (frame_x86.hpp). From release 9 on it also holds the method's
// class.
constexpr int64_t kSenderSpOffset = -1 * 8;
constexpr int64_t kMethodOffset = -3 * 8;
constexpr int64_t BytecodeOffset(int32_t release) { return release < 9 ? -7 * 8 : -8 * 8; }

// Further than arguments of a call reach: 255 of 8 bytes.
constexpr uint64_t kMaxArgumentsBytes = 4096;
// How far a stub's return address may be from the stack pointer, in words.
constexpr uint64_t kMaxStubWords = 32;
constexpr size_t kMaxFound = 8192;

// Instructions at the begin and the end of compiled methods.
constexpr uint8_t kPushRbp = 0x55, kPopRbp = 0x5d, kReturn = 0xc3;

// "call" through a register or memory: opcode, and the bits of the byte after it that say so.
constexpr uint8_t kCallRelative = 0xe8, kCallIndirect = 0xff, kCallMask = 0x38, kCallBits = 0x10;
constexpr size_t kMaxCallBytes = 7;

// Size of an indirect call with its opcode, by the byte after the opcode.
size_t IndirectCallBytes(uint8_t mod_rm) {
  const bool has_sib = (mod_rm >> 6) != 3 && (mod_rm & 7) == 4;
  switch (mod_rm >> 6) {
    case 0:
      return (mod_rm & 7) == 5 ? 6 : 2 + has_sib;
    case 1:
      return 3 + has_sib;
    case 2:
      return 6 + has_sib;
    default:
      return 2;
  }
}

}  // namespace

JavaFrames::JavaFrames(ProcessMemory* memory, const Layout& layout, CodeCache* code, Methods* methods, FrameLimits* limits,
                       const Thread& thread)
    : memory_(memory), layout_(layout), code_(code), methods_(methods), limits_(limits), thread_(thread) {
  if (thread.trace == nullptr) return;
  for (const ManagedTraceFrame& frame : thread.trace->frames) interpreted_.try_emplace(frame.anchor_avma, &frame);
}

std::optional<JitFrame> JavaFrames::FrameAt(uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp, const StackCopy& stack) {
  if (MonotonicNs() >= limits_->deadline_ns) {
    limits_->is_late = true;
    return std::nullopt;
  }
  const CodeBlob* blob = code_->Find(pc_avma);
  if (blob == nullptr) return std::nullopt;
  switch (blob->kind) {
    case CodeBlob::kInterpreter:
      return InterpretedFrame(pc_avma, sp_avma, rbp, stack);
    case CodeBlob::kMethod:
      return CompiledFrame(*blob, pc_avma, sp_avma, rbp, stack);
    case CodeBlob::kStub:
      return StubFrame(*blob, pc_avma, sp_avma, rbp, stack);
  }
  return std::nullopt;
}

bool JavaFrames::IsCaller(uint64_t cfa_avma, const StackCopy& stack) {
  return code_->Find(stack.Read(cfa_avma - 8).value_or(0)) != nullptr;
}

bool JavaFrames::IsSurelyCaller(uint64_t cfa_avma, const StackCopy& stack) {
  const uint64_t pc_avma = stack.Read(cfa_avma - 8).value_or(0);
  const CodeBlob* blob = code_->Find(pc_avma);
  if (blob == nullptr) return false;
  // The interpreter pushes where methods return to, and jumps; a method that is given up returns to its end.
  return blob->kind == CodeBlob::kInterpreter || IsBehindCall(pc_avma) ||
         (blob->kind == CodeBlob::kMethod && code_->OriginalPcOffset(*blob, pc_avma));
}

bool JavaFrames::IsBehindCall(uint64_t pc_avma) {
  std::array<uint8_t, kMaxCallBytes> code;
  if (!memory_->Read(pc_avma - code.size(), code)) return false;
  if (code[code.size() - 5] == kCallRelative) return true;
  for (size_t bytes = 2; bytes <= code.size(); ++bytes) {
    const uint8_t opcode = code[code.size() - bytes], mod_rm = code[code.size() - bytes + 1];
    if (opcode == kCallIndirect && (mod_rm & kCallMask) == kCallBits && IndirectCallBytes(mod_rm) == bytes) return true;
  }
  return false;
}

JavaFrames::Step JavaFrames::Keep(const JitFrame& frame, std::vector<ManagedFrame> functions) {
  uint64_t bytes = 0;
  for (const ManagedFrame& function : functions)
    bytes += sizeof(function) + function.function.size() + function.file.size();
  if (bytes > limits_->left_bytes) {
    limits_->is_full = true;
    functions.clear();
    bytes = 0;
  }
  limits_->left_bytes -= bytes;
  if (found_.size() < kMaxFound) found_[frame.sp_avma] = {frame, std::move(functions)};
  return frame;
}

ManagedFrame JavaFrames::Function(uint64_t method_avma, int64_t bytecode_index, uint64_t sp_avma, uint64_t pc_avma) {
  ManagedFrame frame;
  frame.anchor_avma = sp_avma;
  frame.pc_avma = pc_avma;
  if (const JavaMethod* method = methods_->Find(method_avma)) {
    frame.function = method->function;
    frame.file = method->file;
    // A table of lines may be long: they are left out first.
    if (MonotonicNs() < limits_->deadline_ns) frame.line = methods_->Line(*method, bytecode_index);
  } else {
    frame.function = "(Java method without a name)";
  }
  return frame;
}

// What the VM would not have made is no frame: of a method that is there, at a place in its code. Native methods have no
// code; their frames may hold the place of the call.
std::optional<ManagedFrame> JavaFrames::FunctionAt(uint64_t fp_avma, uint64_t method_avma, int64_t bytecode_index) {
  const JavaMethod* method = methods_->Find(method_avma);
  if (method == nullptr) return std::nullopt;
  if (method->code_bytes == 0) {
    bytecode_index = -1;
  } else if (bytecode_index < 0 || bytecode_index >= method->code_bytes) {
    return std::nullopt;
  }
  return Function(method_avma, bytecode_index, fp_avma, 0);
}

std::optional<ManagedFrame> JavaFrames::InterpretedFunction(uint64_t fp_avma, uint64_t return_address) {
  const auto traced = interpreted_.find(fp_avma);
  if (traced != interpreted_.end()) {
    return FunctionAt(fp_avma, traced->second->key, traced->second->position);
  }
  if (thread_.is_trace_whole) return std::nullopt;
  // Its thread has not said (the agent had not found the VM yet). What is on the stack now is the same frame if it still
  // returns to the same place.
  if (memory_->Word(fp_avma + 8) != return_address) return std::nullopt;
  const auto method_avma = memory_->Word(fp_avma + kMethodOffset),
             place = memory_->Word(fp_avma + BytecodeOffset(layout_.release));
  if (!method_avma || !place) return std::nullopt;
  const JavaMethod* method = methods_->Find(*method_avma);
  if (method == nullptr) return std::nullopt;
  // While it collects, release 8 has the index there itself.
  const bool is_index = layout_.release < 9 && *place < method->code_bytes;
  return FunctionAt(fp_avma, *method_avma, static_cast<int64_t>(is_index ? *place : *place - method->code_avma));
}

JavaFrames::Step JavaFrames::InterpretedFrame(uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp, const StackCopy& stack) {
  // A method is being entered, or one that needs no frame runs: the return address is on top. Not so where the interpreter
  // has called something, as what it pushed to align the stack may be anything.
  if (sp_avma == thread_.rsp && IsCaller(sp_avma + 8, stack)) {
    return Keep({pc_avma, sp_avma, sp_avma + 8, rbp}, {});
  }
  if (rbp < sp_avma || !IsCaller(rbp + 16, stack)) return std::nullopt;
  const uint64_t return_address = stack.Read(rbp + 8).value_or(0);
  const uint64_t sender_sp = stack.Read(rbp + kSenderSpOffset).value_or(0);
  if (sender_sp > rbp + 16 && sender_sp - rbp < kMaxArgumentsBytes && caller_sp_.size() < kMaxFound) {
    caller_sp_[rbp + 16] = sender_sp;
  }
  std::vector<ManagedFrame> functions;
  if (auto function = InterpretedFunction(rbp, return_address)) {
    functions.push_back(std::move(*function));
  } else {
    functions.push_back({.function = "(interpreted Java method without a name)", .anchor_avma = rbp});
  }
  return Keep({pc_avma, sp_avma, rbp + 16, stack.Read(rbp).value_or(0)}, std::move(functions));
}

JavaFrames::Step JavaFrames::CompiledFrame(const CodeBlob& blob, uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp,
                                           const StackCopy& stack) {
  const auto moved = caller_sp_.find(sp_avma);
  const uint64_t begin_avma = moved == caller_sp_.end() ? sp_avma : moved->second;
  // The frame as a whole; or, at the method's begin and end, what there is of it.
  struct Shape {
    uint64_t bytes;
    bool has_rbp;  // below the return address; else rbp is still the caller's
  };
  constexpr Shape kReturnAddress = {8, false}, kWithRbp = {16, true};
  std::array<uint8_t, 2> code = {};
  memory_->Read(pc_avma - 1, code);
  Shape shape = {blob.frame_bytes, true};
  if (code[1] == kReturn || code[1] == kPushRbp) shape = kReturnAddress;
  if (code[1] == kPopRbp) shape = kWithRbp;
  if (pc_avma < blob.frame_complete_avma && code[1] != kPopRbp) {
    shape = code[0] == kPushRbp ? kWithRbp : kReturnAddress;
  }
  // What its code says, else what there might be.
  bool is_guess = false;
  for (const Shape& tried : {shape, Shape{blob.frame_bytes, true}, kReturnAddress, kWithRbp}) {
    const uint64_t cfa_avma = begin_avma + tried.bytes;
    const bool is_caller = is_guess ? IsSurelyCaller(cfa_avma, stack) : IsCaller(cfa_avma, stack);
    is_guess = true;
    if (tried.bytes == 0 || !is_caller) continue;
    uint64_t named_pc_avma = pc_avma;
    if (const auto offset = code_->OriginalPcOffset(blob, pc_avma)) {
      named_pc_avma = stack.Read(begin_avma + *offset).value_or(pc_avma);
    }
    std::vector<ManagedFrame> functions;
    for (const Scope& scope : code_->Scopes(blob, named_pc_avma)) {
      functions.push_back(Function(scope.method_avma, scope.bytecode_index, sp_avma, pc_avma));
      functions.back().inlined = true;
    }
    functions.back().inlined = false;
    const uint64_t caller_rbp = tried.has_rbp ? stack.Read(cfa_avma - 16).value_or(0) : rbp;
    return Keep({pc_avma, sp_avma, cfa_avma, caller_rbp}, std::move(functions));
  }
  return std::nullopt;
}

JavaFrames::Step JavaFrames::StubFrame(const CodeBlob& blob, uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp,
                                       const StackCopy& stack) {
  // Here native code calls Java. The stub keeps a frame pointer, and was called from a file's code.
  if (pc_avma == code_->call_stub_return_avma()) {
    if (rbp < sp_avma || !stack.Read(rbp + 8)) return std::nullopt;
    ManagedFrame boundary;
    boundary.function = "(native code calls Java)";
    boundary.anchor_avma = sp_avma;
    boundary.boundary = true;
    return Keep({pc_avma, sp_avma, rbp + 16, stack.Read(rbp).value_or(0)}, {boundary});
  }
  // If a virtual thread is mounted on this one, its innermost frames are here. The last of them returns to a stub that
  // fetches the next. Beyond it is the frame of the method that entered the virtual thread. The entry is the lower end of
  // that frame; its saved rbp and its return address follow.
  const uint64_t entry_avma = thread_.continuation_entry_avma;
  if (entry_avma >= sp_avma && entry_avma - sp_avma < kMaxArgumentsBytes && blob.frame_bytes == 0) {
    const uint64_t rbp_avma = entry_avma + layout_.continuation_entry_bytes;
    if (IsCaller(rbp_avma + 16, stack)) {
      ManagedFrame rest;
      rest.function = "(the virtual thread's older frames are on the heap)";
      rest.anchor_avma = sp_avma;
      return Keep({pc_avma, sp_avma, rbp_avma + 16, stack.Read(rbp_avma).value_or(0)}, {rest});
    }
  }
  ManagedFrame stub;
  stub.function = blob.name;
  stub.anchor_avma = sp_avma;
  stub.pc_avma = pc_avma;
  if (blob.frame_bytes != 0 && IsCaller(sp_avma + blob.frame_bytes, stack)) {
    const uint64_t cfa_avma = sp_avma + blob.frame_bytes;
    return Keep({pc_avma, sp_avma, cfa_avma, stack.Read(cfa_avma - 16).value_or(0)}, {stub});
  }
  if (rbp >= sp_avma && rbp - sp_avma < 8 * kMaxStubWords && IsCaller(rbp + 16, stack)) {
    return Keep({pc_avma, sp_avma, rbp + 16, stack.Read(rbp).value_or(0)}, {stub});
  }
  for (uint64_t word = 1; word <= kMaxStubWords; ++word) {
    if (IsSurelyCaller(sp_avma + 8 * word, stack)) return Keep({pc_avma, sp_avma, sp_avma + 8 * word, rbp}, {stub});
  }
  return std::nullopt;
}

void JavaFrames::Collect(const NativeStack& native, ManagedThread* thread) const {
  ManagedStack java;
  java.language = Language::kJava;
  uint64_t sp_avma = thread_.rsp;
  for (const NativeFrame& frame : native.frames) {
    const auto found = found_.find(sp_avma);
    if (found != found_.end() && found->second.frame.pc_avma == frame.pc_avma &&
        found->second.frame.cfa_avma == frame.cfa_avma) {
      thread->jit_frames.push_back(found->second.frame);
      java.frames.insert(java.frames.end(), found->second.functions.begin(), found->second.functions.end());
    }
    sp_avma = frame.cfa_avma;
  }
  std::ranges::sort(thread->jit_frames, {}, &JitFrame::sp_avma);
  if (!java.frames.empty()) thread->stacks.push_back(std::move(java));
}

}  // namespace stackd::hotspot

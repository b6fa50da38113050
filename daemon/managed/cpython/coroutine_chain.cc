#include "daemon/managed/cpython/coroutine_chain.h"

#include <string.h>

#include <array>
#include <string>
#include <utility>

namespace stackd {
namespace {

constexpr int kMaxAwaits = 256;
constexpr int kLooks = 3;
// A pointer in a frame may have its low bits in use.
constexpr uint64_t kTagBits = 3;
constexpr uint64_t kInstructionBytes = 2;

// A frame that is an object, up to 3.10: Include/cpython/frameobject.h of 3.9.18 and 3.10.13, and PyGenObject.
constexpr uint64_t kGeneratorRunning = 24, kStackTop = 72;            // up to 3.9
constexpr uint64_t kValueStack = 64, kStackDepth = 80, kState = 108;  // 3.10
constexpr uint64_t kCodeBytes = 48, kBytesData = 32;
constexpr uint8_t kYieldFrom = 72;  // Lib/opcode.py

// A frame within the coroutine, 3.11 to 3.13: pycore_frame.h of 3.11.7, 3.12.1 and 3.13.0.
constexpr uint64_t kStackCount = 64, kLocals = 72;
// What RESUME has as its argument behind an await or a `yield from`, at least.
constexpr uint8_t kResumedInAwait = 2;

// PyFrameState and _PyFrameState. Up to 3.12 one that is suspended does not tell what for.
CoroutineState StateOf(uint32_t version, int8_t state) {
  const int8_t created = version < 0x30d ? -2 : -3;
  if (state == created) return CoroutineState::kCreated;
  if (state == -1 && version >= 0x30d) return CoroutineState::kInAwait;
  if (state < 0) return CoroutineState::kSuspended;
  return state == 0 ? CoroutineState::kExecuting : CoroutineState::kCompleted;
}

bool IsCoroutineType(const std::string& type) {
  return type == "coroutine" || type == "generator" || type == "async_generator";
}

}  // namespace

struct CoroutineReader::Start {
  // A coroutine with its frame up to the first value, or a frame that is an object.
  static constexpr size_t kBytes = 152;

  Start(const CpythonObjects& objects, uint64_t object_avma) : avma(object_avma) {
    if (!objects.ReadBytes(object_avma, bytes.data(), bytes.size())) bytes = {};
  }
  template <typename T>
  T At(uint64_t offset) const {
    T value{};
    if (offset <= kBytes - sizeof(T)) memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
  }

  const uint64_t avma;
  std::array<uint8_t, kBytes> bytes = {};
};

bool CoroutineReader::IsCoroutine(uint64_t object_avma) const { return IsCoroutineType(objects_.TypeName(object_avma)); }

CoroutineChain::Link CoroutineReader::ReadFrameObject(const Start& coroutine, const std::string& type,
                                                      uint64_t* awaited_avma) const {
  const bool is_first_form = objects_.version() < 0x30a;
  const auto frame_avma = coroutine.At<uint64_t>(objects_.offset(CpythonObjects::kGeneratorFrame));
  CoroutineChain::Link link = {.coroutine_avma = coroutine.avma};
  if (frame_avma == 0) return link;
  const Start frame(objects_, frame_avma);
  link.code_avma = frame.At<uint64_t>(objects_.offset(CpythonObjects::kFrameExecutable));
  link.position = frame.At<int32_t>(objects_.offset(CpythonObjects::kFrameInstruction));
  if (is_first_form) {
    link.state = coroutine.At<uint8_t>(kGeneratorRunning) != 0 ? CoroutineState::kExecuting
                 : link.position < 0                           ? CoroutineState::kCreated
                                                               : CoroutineState::kSuspended;
  } else {
    link.position *= static_cast<int64_t>(kInstructionBytes);
    link.state = StateOf(objects_.version(), frame.At<int8_t>(kState));
  }
  if (link.state != CoroutineState::kSuspended) return link;
  // A coroutine is suspended in an await always, and a generator may be in a `yield`.
  const auto next_is_yield_from = [&] {
    const uint64_t code_avma = objects_.Pointer(link.code_avma + kCodeBytes) + kBytesData;
    return objects_.Value<uint8_t>(code_avma + static_cast<uint64_t>(link.position) + kInstructionBytes) == kYieldFrom;
  };
  if (type != "coroutine" && !next_is_yield_from()) return link;
  link.state = CoroutineState::kInAwait;
  const uint64_t top_avma = is_first_form
                                ? frame.At<uint64_t>(kStackTop)
                                : frame.At<uint64_t>(kValueStack) + sizeof(uint64_t) * frame.At<uint32_t>(kStackDepth);
  *awaited_avma = objects_.Pointer(top_avma - sizeof(uint64_t));
  return link;
}

CoroutineChain::Link CoroutineReader::ReadLink(const Start& coroutine, const std::string& type,
                                               uint64_t* awaited_avma) const {
  const uint32_t version = objects_.version();
  if (version < 0x30b) return ReadFrameObject(coroutine, type, awaited_avma);
  const uint64_t frame = objects_.offset(CpythonObjects::kGeneratorFrame);
  CoroutineChain::Link link = {.coroutine_avma = coroutine.avma};
  link.code_avma = coroutine.At<uint64_t>(frame + objects_.offset(CpythonObjects::kFrameExecutable)) & ~kTagBits;
  const auto instruction_avma = coroutine.At<uint64_t>(frame + objects_.offset(CpythonObjects::kFrameInstruction));
  link.position =
      static_cast<int64_t>(instruction_avma - link.code_avma - objects_.offset(CpythonObjects::kCodeInstructions));
  link.state = StateOf(version, coroutine.At<int8_t>(objects_.offset(CpythonObjects::kGeneratorState)));
  if (link.state == CoroutineState::kSuspended && version < 0x30d) {
    const bool is_in_await =
        type == "coroutine" || objects_.Value<uint8_t>(instruction_avma + kInstructionBytes + 1) >= kResumedInAwait;
    if (is_in_await) link.state = CoroutineState::kInAwait;
  }
  if (link.state != CoroutineState::kInAwait) return link;
  const uint64_t top_avma =
      version == CpythonObjects::kPublishesTasks
          ? coroutine.At<uint64_t>(frame + objects_.offset(CpythonObjects::kFrameStackPointer))
          : coroutine.avma + frame + kLocals + sizeof(uint64_t) * coroutine.At<uint32_t>(frame + kStackCount);
  *awaited_avma = objects_.Pointer(top_avma - sizeof(uint64_t)) & ~kTagBits;
  return link;
}

CoroutineChain CoroutineReader::Read(uint64_t coroutine_avma) const {
  CoroutineChain chain;
  chain.awaited_avma = coroutine_avma;
  while (chain.links.size() < kMaxAwaits && chain.awaited_avma != 0) {
    const Start object(objects_, chain.awaited_avma);
    const std::string type = objects_.NameOfType(object.At<uint64_t>(objects_.offset(CpythonObjects::kObjectType)));
    if (!IsCoroutineType(type)) break;
    uint64_t awaited_avma = 0;
    const CoroutineChain::Link link = ReadLink(object, type, &awaited_avma);
    chain.awaited_avma = awaited_avma;
    if (link.state == CoroutineState::kCompleted) break;
    chain.links.push_back(link);
    if (link.state != CoroutineState::kInAwait) break;
  }
  return chain;
}

std::optional<CoroutineChain> CoroutineReader::ReadStanding(uint64_t coroutine_avma) const {
  CoroutineChain before = Read(coroutine_avma);
  for (int look = 0; look < kLooks; ++look) {
    CoroutineChain again = Read(coroutine_avma);
    if (again == before) return again;
    before = std::move(again);
  }
  return std::nullopt;
}

}  // namespace stackd

#include "daemon/managed/ruby/ruby_objects.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

// offsetof() in the internal headers of 3.1.2, 3.2.3, 3.3.8 and 3.4.5, as of agent/runtimes/ruby/ruby_layout.c.
constexpr RubyOffsets kRuby31 = {.thread_native = 0,
                                 .tid = 88,
                                 .thread_waiting_node = 104,
                                 .thread_locking_mutex = 264,
                                 .thread_name = 352,
                                 .ractor_running = 336,
                                 .ractor_waiting = 384,
                                 .text_characters = 16,
                                 .text_length_is_in_flags = true};
constexpr RubyOffsets kRuby32 = {.thread_native = 40,
                                 .tid = 16,
                                 .thread_waiting_node = 56,
                                 .thread_locking_mutex = 216,
                                 .thread_name = 304,
                                 .ractor_running = 336,
                                 .ractor_waiting = 384,
                                 .text_characters = 24,
                                 .text_length_is_in_flags = false};
constexpr RubyOffsets kRuby33 = {.thread_native = 40,
                                 .tid = 24,
                                 .thread_waiting_node = 72,
                                 .thread_locking_mutex = 344,
                                 .thread_name = 432,
                                 .ractor_running = 328,
                                 .ractor_waiting = 344,
                                 .text_characters = 24,
                                 .text_length_is_in_flags = false};
constexpr RubyOffsets kRuby34 = {.thread_native = 40,
                                 .tid = 24,
                                 .thread_waiting_node = 72,
                                 .thread_locking_mutex = 344,
                                 .thread_name = 448,
                                 .ractor_running = 328,
                                 .ractor_waiting = 344,
                                 .text_characters = 24,
                                 .text_length_is_in_flags = false};

// The same in all of them.
constexpr uint64_t kContextThread = 48;  // rb_execution_context_t
constexpr uint64_t kThreadRactor = 24;   // rb_thread_t
constexpr uint64_t kFiberContext = 80;   // rb_fiber_t
constexpr uint64_t kTextLength = 16, kTextPointer = 24;
constexpr uint64_t kDataType = 16, kDataFlag = 24, kDataPointer = 32;  // RTypedData
constexpr uint64_t kMutexFiber = 0;                                    // rb_mutex_t
// Heads of its list of waiters: 3.4.11 has a field more than 3.4.5.
constexpr uint64_t kMutexWaiters[] = {16, 24};
constexpr uint64_t kWaiterNode = 24, kWaiterThread = 8;  // struct sync_waiter
constexpr uint64_t kNodePrevious = 8;                    // ccan_list_node, which begins with the next
constexpr uint64_t kTypeMask = 0x1f, kString = 0x05, kData = 0x0c;
constexpr uint64_t kStringIsElsewhere = 1 << 13;
constexpr uint64_t kDataIsEmbedded = 2;  // from 3.3 on, in the flag
constexpr std::string_view kMutexType = "mutex";

constexpr size_t kMaxNodes = 4096;
// Functions of libc and of Ruby lie between the call and the one that waits.
constexpr size_t kStackWords = 512;
constexpr uint64_t kMaxTextBytes = 256;
constexpr uint64_t kNoAddress = 0x10000, kEndOfAddresses = 1ull << 47;

}  // namespace

const RubyOffsets* OffsetsOfRuby(uint64_t version) {
  switch (version / 100) {
    case 301:
      return &kRuby31;
    case 302:
      return &kRuby32;
    case 303:
      return &kRuby33;
    case 304:
      return &kRuby34;
    default:
      return nullptr;
  }
}

std::optional<uint64_t> RubyObjects::Word(uint64_t avma) const {
  std::array<uint8_t, sizeof(uint64_t)> bytes;
  if (avma < kNoAddress || avma >= kEndOfAddresses || avma % 8 != 0) return std::nullopt;
  if (MonotonicNs() >= deadline_ns_) return std::nullopt;
  if (memory_.ReadSome(avma, bytes) != bytes.size()) return std::nullopt;
  uint64_t word;
  memcpy(&word, bytes.data(), sizeof(word));
  return word;
}

std::string RubyObjects::Text(uint64_t avma) const {
  const auto flags = Word(avma);
  if (!flags || (*flags & kTypeMask) != kString) return "";
  uint64_t length = Word(avma + kTextLength).value_or(0);
  uint64_t characters = avma + offsets_.text_characters;
  if ((*flags & kStringIsElsewhere) != 0) {
    characters = Word(avma + kTextPointer).value_or(0);
  } else if (offsets_.text_length_is_in_flags) {
    length = *flags >> 14 & 0x1f;
  }
  std::string text(std::min(length, kMaxTextBytes), '\0');
  const size_t got = memory_.ReadSome(characters, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  return got == text.size() ? ToValidUtf8(text) : "";
}

std::vector<uint64_t> RubyObjects::Nodes(uint64_t head_avma) const {
  std::vector<uint64_t> nodes;
  for (uint64_t node = Word(head_avma).value_or(0); node != 0 && node != head_avma; node = Word(node).value_or(0)) {
    if (nodes.size() == kMaxNodes) return {};
    nodes.push_back(node);
  }
  return nodes;
}

bool RubyObjects::IsListHead(uint64_t avma) const {
  const auto first = Word(avma);
  return first && Word(*first + kNodePrevious) == avma;
}

uint64_t RubyObjects::ThreadOf(uint64_t context_avma) const { return Word(context_avma + kContextThread).value_or(0); }

uint64_t RubyObjects::RactorOf(uint64_t thread_avma) const { return Word(thread_avma + kThreadRactor).value_or(0); }

int32_t RubyObjects::TidOf(uint64_t thread_avma) const {
  const uint64_t has_tid =
      offsets_.thread_native == 0 ? thread_avma : Word(thread_avma + offsets_.thread_native).value_or(0);
  return static_cast<int32_t>(Word(has_tid + offsets_.tid).value_or(0));
}

std::string RubyObjects::NameOf(uint64_t thread_avma) const {
  return Text(Word(thread_avma + offsets_.thread_name).value_or(0));
}

std::optional<RubyObjects::VmLock> RubyObjects::ReadVmLock(uint64_t ractor_avma) const {
  const auto owner = Word(ractor_avma + offsets_.ractor_running);
  if (!owner) return std::nullopt;
  VmLock lock{.owner_avma = *owner, .waiters = Nodes(ractor_avma + offsets_.ractor_waiting)};
  for (uint64_t& waiter : lock.waiters) waiter -= offsets_.thread_waiting_node;
  if (Word(ractor_avma + offsets_.ractor_running) != owner) return std::nullopt;
  return lock;
}

uint64_t RubyObjects::WaitedMutex(uint64_t thread_avma) const {
  return Word(thread_avma + offsets_.thread_locking_mutex).value_or(0);
}

std::optional<RubyObjects::Mutex> RubyObjects::ReadMutex(uint64_t mutex_avma) const {
  const auto flags = Word(mutex_avma), type = Word(mutex_avma + kDataType), flag = Word(mutex_avma + kDataFlag);
  if (!flags || (*flags & kTypeMask) != kData || !type || !flag) return std::nullopt;
  std::array<char, kMutexType.size() + 1> name = {};
  const uint64_t name_avma = Word(*type).value_or(0);
  const size_t got = memory_.ReadSome(name_avma, {reinterpret_cast<uint8_t*>(name.data()), name.size()});
  if (got != name.size() || std::string_view(name.data()) != kMutexType) return std::nullopt;
  const uint64_t data =
      (*flag & kDataIsEmbedded) != 0 ? mutex_avma + kDataPointer : Word(mutex_avma + kDataPointer).value_or(0);
  const auto fiber = Word(data + kMutexFiber);
  if (!fiber) return std::nullopt;
  Mutex mutex;
  if (*fiber != 0) mutex.owner_avma = ThreadOf(*fiber + kFiberContext);
  for (const uint64_t offset : kMutexWaiters) {
    if (!IsListHead(data + offset)) continue;
    for (const uint64_t node : Nodes(data + offset)) {
      mutex.waiters.push_back(Word(node - kWaiterNode + kWaiterThread).value_or(0));
    }
    break;
  }
  return mutex;
}

uint64_t RubyObjects::WaitedMutexOnStack(uint64_t rsp_avma, int32_t tid) const {
  std::array<uint64_t, kStackWords> words;
  const size_t got = memory_.ReadSome(rsp_avma, {reinterpret_cast<uint8_t*>(words.data()), sizeof(words)});
  // A struct sync_waiter begins with the Mutex, then comes the thread, and its node lies in the list of the Mutex.
  for (size_t i = 0; i + kWaiterNode / 8 < got / sizeof(uint64_t); ++i) {
    if ((Word(words[i]).value_or(0) & kTypeMask) != kData || TidOf(words[i + 1]) != tid) continue;
    const auto mutex = ReadMutex(words[i]);
    if (mutex && std::ranges::find(mutex->waiters, words[i + 1]) != mutex->waiters.end()) return words[i];
  }
  return 0;
}

}  // namespace stackd

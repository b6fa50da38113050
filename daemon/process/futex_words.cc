#include "daemon/process/futex_words.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "daemon/modules/address_map.h"
#include "daemon/process/control_block.h"

namespace stackd {
namespace {

// Repeats the read: a mutex that changes hands has no owner for some nanoseconds, and is not believed then.
constexpr int kLooks = 3;
constexpr uint32_t kLockedWithWaiters = 2;

std::optional<FutexWord> ReadOnce(const ProcessFiles& files, RwlockLayout layout, uint64_t avma) {
  std::array<uint8_t, kLockBytesBefore + kLockBytesFrom> memory;
  if (avma >= kLockBytesBefore) {
    const size_t got = files.ReadSome(avma - kLockBytesBefore, memory);
    if (got >= kLockBytesBefore + sizeof(uint32_t))
      return DecodeFutex(avma, std::span(memory).first(got), kLockBytesBefore, layout);
  }
  // At the beginning of a mapping there is nothing before it.
  const size_t got = files.ReadSome(avma, std::span(memory).first(kLockBytesFrom));
  if (got < sizeof(uint32_t)) return std::nullopt;
  return DecodeFutex(avma, std::span(memory).first(got), 0, layout);
}

// Which of its words a thread that joins another waits on differs: the tid itself, later one of its own.
constexpr uint64_t kMaxBlockBytes = 2432;

// glibc's _IO_lock_t: the word, how often its owner has it, and the owner's control block (sysdeps/nptl/stdio-lock.h). 2.36
// counts from 1, 2.43 from 0.
int32_t OwnerOfStdioLock(const ProcessFiles& files, const FutexWord& word) {
  struct StdioLock {
    uint32_t lock;
    uint32_t count;
    uint64_t owner_avma;
  } lock;
  std::array<uint8_t, sizeof(lock)> bytes;
  if (word.value != kLockedWithWaiters || word.avma % alignof(StdioLock) != 0) return 0;
  if (files.ReadSome(word.avma, bytes) != bytes.size()) return 0;
  memcpy(&lock, bytes.data(), sizeof(lock));
  const bool is_held = lock.lock == kLockedWithWaiters && lock.count <= static_cast<uint32_t>(kMaxTid);
  return is_held ? TidOfControlBlock(files, lock.owner_avma) : 0;
}

int32_t TidOfControlBlockAround(const ProcessFiles& files, uint64_t avma) {
  std::array<uint8_t, kMaxBlockBytes> memory;
  const uint64_t last = avma & ~(kControlBlockAlignment - 1);
  if (last < kMaxBlockBytes) return 0;
  const uint64_t first = last - kMaxBlockBytes + kControlBlockAlignment;
  const size_t got = files.ReadSome(first, memory);
  const auto word_at = [&](uint64_t word_avma) -> uint64_t {
    uint64_t word = 0;
    if (word_avma - first + sizeof(word) <= got) memcpy(&word, memory.data() + (word_avma - first), sizeof(word));
    return word;
  };
  for (uint64_t block = first; block <= last; block += kControlBlockAlignment) {
    if (word_at(block) != block || word_at(block + kControlBlockSelf) != block) continue;
    return TidOfControlBlock(files, block);
  }
  return 0;
}

std::optional<FutexWord> Read(const ProcessFiles& files, RwlockLayout layout, uint64_t avma) {
  std::optional<FutexWord> word;
  for (int look = 0; look < kLooks; look++) {
    word = ReadOnce(files, layout, avma);
    if (!word || word->mutex || word->rwlock || word->value != kLockedWithWaiters) break;
  }
  if (!word || word->mutex || word->rwlock) return word;
  word->thread_tid = TidOfControlBlockAround(files, avma);
  if (word->thread_tid == 0) word->stdio_owner_tid = OwnerOfStdioLock(files, *word);
  return word;
}

}  // namespace

void MarkShared(const ProcessFiles& files, std::vector<FutexWord>* words) {
  if (words->empty()) return;
  const auto text = files.ReadMaps();
  if (!text) return;
  const AddressMap map(ParseMaps(*text));
  for (FutexWord& word : *words) {
    const Mapping* mapping = map.Find(word.avma);
    if (mapping == nullptr) continue;
    word.is_shared = mapping->shared;
    if (mapping->shared) word.shared_memory = {mapping->device, mapping->inode};
  }
}

std::vector<FutexWord> ReadFutexWords(const ProcessFiles& files, RwlockLayout layout, std::span<const uint64_t> avmas) {
  std::vector<uint64_t> distinct(avmas.begin(), avmas.end());
  std::ranges::sort(distinct);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() > kMaxFutexWords) distinct.resize(kMaxFutexWords);
  std::vector<FutexWord> words;
  for (uint64_t avma : distinct) {
    // The kernel takes no other.
    if (avma % sizeof(uint32_t) != 0) continue;
    if (auto word = Read(files, layout, avma)) words.push_back(*word);
  }
  MarkShared(files, &words);
  return words;
}

}  // namespace stackd

#include "daemon/collect/futex_words.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace stackd {
namespace {

// A mutex that changes hands is nobody's for some nanoseconds, and not believed then.
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

std::optional<FutexWord> Read(const ProcessFiles& files, RwlockLayout layout, uint64_t avma) {
  std::optional<FutexWord> word;
  for (int look = 0; look < kLooks; look++) {
    word = ReadOnce(files, layout, avma);
    if (!word || word->mutex || word->rwlock || word->value != kLockedWithWaiters) break;
  }
  return word;
}

}  // namespace

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
  return words;
}

}  // namespace stackd

#include "daemon/process/control_block.h"

#include <array>
#include <cstring>

namespace stackd {
namespace {

// offsetof and _thread_db_pthread_tid from 2.17 to 2.43.
constexpr uint64_t kTid = 720;
constexpr int32_t kMaxTid = 1 << 22;

}  // namespace

int32_t TidOfControlBlock(const ProcessFiles& files, uint64_t block_avma) {
  std::array<uint64_t, kControlBlockSelf / sizeof(uint64_t) + 1> words;
  if (block_avma == 0 || block_avma % kControlBlockAlignment != 0) return 0;
  std::array<uint8_t, sizeof(words)> bytes;
  if (files.ReadSome(block_avma, bytes) != bytes.size()) return 0;
  memcpy(words.data(), bytes.data(), sizeof(words));
  if (words.front() != block_avma || words.back() != block_avma) return 0;
  int32_t tid;
  std::array<uint8_t, sizeof(tid)> tid_bytes;
  if (files.ReadSome(block_avma + kTid, tid_bytes) != tid_bytes.size()) return 0;
  memcpy(&tid, tid_bytes.data(), sizeof(tid));
  return tid > 0 && tid <= kMaxTid ? tid : 0;
}

}  // namespace stackd

#include "daemon/ring/ring.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <string>

namespace stackd {
namespace {

constexpr uint32_t kMinBytes = 64u << 10;
constexpr uint32_t kMaxBytes = STACKD_HEADER_BYTES + STACKD_MAX_SLOTS * STACKD_SLOT_BYTES;

// A quarter, so that a crash in the middle of a large dump finds room.
uint32_t CrashSlots(uint32_t slot_count) { return slot_count / 4; }

}  // namespace

Result<std::unique_ptr<Ring>> Ring::Create(uint32_t size_bytes) {
  if (size_bytes < kMinBytes || size_bytes > kMaxBytes) {
    return Error(Code::kInvalidArgument, "a ring has " + std::to_string(kMinBytes) + " to " + std::to_string(kMaxBytes) +
                                             " bytes, not " + std::to_string(size_bytes));
  }
  std::unique_ptr<Ring> ring(new Ring);
  ring->slot_count_ = (size_bytes - STACKD_HEADER_BYTES) / STACKD_SLOT_BYTES;
  ring->size_bytes_ = STACKD_HEADER_BYTES + ring->slot_count_ * STACKD_SLOT_BYTES;
  ring->fd_ = Fd(memfd_create("stackd-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!ring->fd_.valid()) return Error(Code::kResourceExhausted, std::string("memfd_create: ") + strerror(errno));
  // fallocate takes every page now: a write in a signal handler must never be the one that finds no memory.
  if (ftruncate(ring->fd(), ring->size_bytes_) != 0 || fallocate(ring->fd(), 0, 0, ring->size_bytes_) != 0 ||
      fcntl(ring->fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Error(Code::kResourceExhausted, std::string("no memory for a ring: ") + strerror(errno));
  }
  void* memory = mmap(nullptr, ring->size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd(), 0);
  if (memory == MAP_FAILED) return Error(Code::kResourceExhausted, std::string("mmap of a ring: ") + strerror(errno));
  ring->memory_ = memory;

  stackd_ring_header* header = ring->header();
  header->magic = STACKD_RING_MAGIC;
  header->abi_version = STACKD_ABI_VERSION;
  header->header_bytes = STACKD_HEADER_BYTES;
  header->slot_bytes = STACKD_SLOT_BYTES;
  header->slot_count = ring->slot_count_;
  header->crash_slot_count = CrashSlots(ring->slot_count_);
  for (uint32_t slot = 0; slot < ring->slot_count_; slot++) header->free[slot / 64] |= 1ull << (slot % 64);
  return ring;
}

uint32_t Ring::UsedSlots() const {
  uint32_t unused = 0;
  for (const uint64_t& word : header()->free) {
    unused += static_cast<uint32_t>(std::popcount(__atomic_load_n(&word, __ATOMIC_RELAXED)));
  }
  return slot_count_ - std::min(unused, slot_count_);
}

Ring::~Ring() {
  if (memory_ != nullptr) munmap(memory_, size_bytes_);
}

}  // namespace stackd

#include "daemon/ring/ring_reader.h"

#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// Long enough for the answer of a single thread that was asked just now. A longer spin would take the CPU from the threads
// that are to answer, on a machine with few CPUs.
constexpr int64_t kSpinNs = 10'000;

constexpr uint32_t kMaxStackWords = kMaxStackBytes / 8;
// Size of the longest record: both stacks of a thread with all their words, after the slot of a crash.
constexpr size_t kMaxChainBytes = STACKD_SLOT_BYTES + sizeof(stackd_thread_record) +
                                  2 * 8 * (kMaxStackWords + kMaxStackWords / 64 + 1) + STACKD_SLOT_BYTES;

uint32_t BitmapWords(uint32_t slot_count) { return (slot_count + 63) / 64; }

}  // namespace

// A record's slots, copied out of shared memory.
struct RingReader::Chain {
  std::vector<uint32_t> slots;
  std::vector<char> bytes;  // the slots without the headers of all but the first
};

int RingReader::Drain(Listener* listener) {
  int records = 0;
  // Bounds the slots: as many as the ring has, and as many again that are written behind this loop. Only chains that share
  // slots have more. The rest stays for the next call.
  int64_t slots_left = 2 * int64_t{ring_->slot_count()};
  Chain chain;
  for (uint32_t i = 0; i < BitmapWords(ring_->slot_count()) && slots_left > 0; i++) {
    uint64_t* word = &ring_->header()->ready[i];
    if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0) continue;
    uint64_t ready = __atomic_exchange_n(word, 0, __ATOMIC_ACQUIRE);
    for (; ready != 0; ready &= ready - 1) {
      uint32_t slot = i * 64 + static_cast<uint32_t>(std::countr_zero(ready));
      if (slot >= ring_->slot_count()) continue;
      records++;
      if (TakeChain(slot, &chain)) {
        Deliver(chain, listener);
      } else {
        listener->OnCorrupt("a chain of slots that does not end");
      }
      Free(chain);
      slots_left -= static_cast<int64_t>(chain.slots.size());
    }
  }
  return records;
}

bool RingReader::TakeChain(uint32_t first_slot, Chain* chain) {
  chain->slots.clear();
  chain->bytes.clear();
  uint32_t slot = first_slot;
  while (slot < ring_->slot_count() && chain->bytes.size() < kMaxChainBytes) {
    size_t skip = chain->slots.empty() ? 0 : sizeof(stackd_slot_header);
    size_t at = chain->bytes.size();
    chain->bytes.resize(at + STACKD_SLOT_BYTES - skip);
    const char* source = static_cast<const char*>(ring_->slot(slot));
    memcpy(chain->bytes.data() + at, source + skip, STACKD_SLOT_BYTES - skip);
    uint32_t next = __atomic_load_n(reinterpret_cast<const uint32_t*>(source), __ATOMIC_RELAXED);
    chain->slots.push_back(slot);
    if (next == STACKD_NO_SLOT) return true;
    slot = next;
  }
  return false;
}

void RingReader::Free(const Chain& chain) {
  for (uint32_t slot : chain.slots) {
    __atomic_fetch_or(&ring_->header()->free[slot / 64], 1ull << (slot % 64), __ATOMIC_RELEASE);
  }
}

void RingReader::DeliverCrash(CrashRecord record, Listener* listener) {
  // That the process died is worth more than how its stack looked.
  if (!record.thread) listener->OnCorrupt("a crash record without a thread, or whose sizes disagree");
  listener->OnCrash(std::move(record));
}

void RingReader::Deliver(const Chain& chain, Listener* listener) {
  stackd_slot_header header;
  memcpy(&header, chain.bytes.data(), sizeof(header));
  switch (header.kind) {
    case STACKD_RECORD_THREAD:
      if (auto record = ParseThread(chain.bytes)) return listener->OnThread(std::move(*record));
      return listener->OnCorrupt("a thread record whose sizes disagree");
    case STACKD_RECORD_STATUS: {
      auto records = ParseStatuses(chain.bytes);
      if (!records) return listener->OnCorrupt("a status record with too many entries");
      for (auto& record : *records) {
        if (record) {
          listener->OnStatus(std::move(*record));
        } else {
          listener->OnCorrupt("an unknown thread status");
        }
      }
      return;
    }
    case STACKD_RECORD_WAIT: {
      auto records = ParseWaits(chain.bytes);
      if (!records) return listener->OnCorrupt("a wait record with too many entries");
      for (WaitRecord& record : *records) listener->OnWait(record);
      return;
    }
    case STACKD_RECORD_SCHEDSTAT: {
      auto records = ParseSchedStats(chain.bytes);
      if (!records) return listener->OnCorrupt("a schedstat record with too many entries");
      for (SchedStatRecord& record : *records) listener->OnSchedStats(record);
      return;
    }
    case STACKD_RECORD_CRASH:
      return DeliverCrash(*ParseCrash(chain.bytes), listener);
    default:
      listener->OnCorrupt("a record of unknown kind");
  }
}

void RingReader::TakeTentative(int64_t now_ns, Listener* listener) {
  Chain chain;
  for (uint32_t& entry : ring_->header()->tentative) {
    uint32_t first_slot = __atomic_exchange_n(&entry, 0, __ATOMIC_ACQUIRE) - 1;
    if (first_slot == STACKD_NO_SLOT) continue;
    bool whole = TakeChain(first_slot, &chain);
    Free(chain);
    auto record = whole ? ParseCrash(chain.bytes) : std::nullopt;
    if (!record) {
      listener->OnCorrupt("a tentative crash record that makes no sense");
      continue;
    }
    int64_t age_ns = now_ns - std::min(now_ns, record->time_ns);
    if (age_ns <= static_cast<int64_t>(STACKD_TENTATIVE_NS)) DeliverCrash(std::move(*record), listener);
  }
}

void RingReader::Wait(uint32_t seen_doorbell, int64_t timeout_ns) {
  stackd_ring_header* header = ring_->header();
  int64_t spin_until_ns = MonotonicNs() + std::min(timeout_ns, kSpinNs);
  do {
    if (Doorbell() != seen_doorbell) return;
    _mm_pause();
  } while (MonotonicNs() < spin_until_ns);

  timespec timeout{static_cast<time_t>(timeout_ns / kNsPerSecond), static_cast<long>(timeout_ns % kNsPerSecond)};
  __atomic_store_n(&header->reader_sleeping, 1, __ATOMIC_SEQ_CST);
  // The kernel compares the word again: a ring in between is not missed.
  syscall(SYS_futex, &header->doorbell, FUTEX_WAIT, seen_doorbell, &timeout, nullptr, 0);
  __atomic_store_n(&header->reader_sleeping, 0, __ATOMIC_RELAXED);
}

uint32_t RingReader::Doorbell() const { return __atomic_load_n(&ring_->header()->doorbell, __ATOMIC_SEQ_CST); }

void RingReader::Interrupt() {
  __atomic_fetch_add(&ring_->header()->doorbell, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &ring_->header()->doorbell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace stackd

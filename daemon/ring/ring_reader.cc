#include "daemon/ring/ring_reader.h"

#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

// Long enough for the answer of a single thread that was asked just now; on a machine with few cores more would take the
// core from the threads that are to answer.
constexpr int64_t kSpinNs = 10'000;

constexpr uint32_t kMaxStackWords = RingReader::kMaxStackBytes / 8;

uint32_t BitmapWords(uint32_t slot_count) { return (slot_count + 63) / 64; }

}  // namespace

// A record's slots, copied out of shared memory.
struct RingReader::Chain {
  std::vector<uint32_t> slots;
  std::vector<char> bytes;  // the slots without the headers of all but the first
};

int RingReader::Drain(Listener* listener) {
  int records = 0;
  // What lies in the ring, and as much again that is written behind us, is not more slots than this; chains that share
  // slots would be. The rest stays for the next call.
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
  size_t limit = sizeof(stackd_thread_record) + 2 * 8 * (kMaxStackWords + kMaxStackWords / 64 + 1) + STACKD_SLOT_BYTES;
  while (slot < ring_->slot_count() && chain->bytes.size() < limit) {
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

namespace {

// Procfs has a letter there; it goes to people as it is.
char StateLetter(char state) { return (state | 0x20) >= 'a' && (state | 0x20) <= 'z' ? state : '\0'; }

// False if the payload does not hold what the header promises.
bool ParseStack(const char* payload, size_t payload_bytes, ThreadRecord* record) {
  size_t available = payload_bytes / 8;
  size_t at = 0;
  auto word_at = [&](size_t index) {
    uint64_t word;
    memcpy(&word, payload + 8 * index, sizeof(word));
    return word;
  };
  auto take = [&](uint32_t stack_words) {
    for (uint32_t done = 0; done < stack_words; done += 64) {
      uint32_t covered = std::min<uint32_t>(64, stack_words - done);
      if (at >= available) return false;
      uint64_t mask = word_at(at++);
      if (covered < 64 && (mask >> covered) != 0) return false;
      size_t kept = static_cast<size_t>(std::popcount(mask));
      if (kept > available - at) return false;
      record->masks.push_back(mask);
      size_t before = record->words.size();
      record->words.resize(before + kept);
      if (kept > 0) memcpy(record->words.data() + before, payload + 8 * at, 8 * kept);
      at += kept;
    }
    return true;
  };
  return take(record->stack_words) && take(record->outer_words);
}

bool ParseThread(const std::vector<char>& bytes, ThreadRecord* out) {
  stackd_thread_record raw;
  memcpy(&raw, bytes.data(), sizeof(raw));
  if (raw.stack_words > kMaxStackWords || raw.outer_words > kMaxStackWords) return false;
  out->seq = raw.seq;
  out->tid = raw.tid;
  out->flags = raw.flags;
  out->handler_ns = raw.handler_ns;
  out->time_ns = static_cast<int64_t>(std::min<uint64_t>(raw.time_ns, INT64_MAX));
  out->cpu_ns = static_cast<int64_t>(std::min<uint64_t>(raw.cpu_ns, INT64_MAX));
  out->thread_self_avma = raw.thread_self;
  out->name = FieldText(raw.name);
  memcpy(out->registers, raw.regs, sizeof(raw.regs));
  out->stack_base_avma = raw.stack_base;
  out->stack_words = raw.stack_words;
  out->outer_base_avma = raw.outer_base;
  out->outer_words = raw.outer_words;
  return ParseStack(bytes.data() + sizeof(raw), bytes.size() - sizeof(raw), out);
}

void ParseStatuses(const std::vector<char>& bytes, RingReader::Listener* listener) {
  stackd_status_record raw;
  memcpy(&raw, bytes.data(), sizeof(raw));
  if (raw.entry_count > STACKD_STATUS_ENTRIES) {
    listener->OnCorrupt("a status record with too many entries");
    return;
  }
  for (uint32_t i = 0; i < raw.entry_count; i++) {
    const stackd_thread_status_entry& entry = raw.entries[i];
    if (entry.status < STACKD_STATUS_SIGNAL_BLOCKED || entry.status > STACKD_STATUS_AGENT_FAULT) {
      listener->OnCorrupt("an unknown thread status");
      continue;
    }
    listener->OnStatus({.seq = raw.seq,
                        .tid = entry.tid,
                        .status = entry.status,
                        .kernel_state = StateLetter(entry.state),
                        .name = FieldText(entry.name),
                        .wait_channel = FieldText(entry.wait_channel)});
  }
}

}  // namespace

void RingReader::Deliver(const Chain& chain, Listener* listener) {
  stackd_slot_header header;
  memcpy(&header, chain.bytes.data(), sizeof(header));
  if (header.kind == STACKD_RECORD_THREAD) {
    ThreadRecord record;
    if (ParseThread(chain.bytes, &record)) {
      listener->OnThread(std::move(record));
    } else {
      listener->OnCorrupt("a thread record whose sizes disagree");
    }
  } else if (header.kind == STACKD_RECORD_STATUS) {
    ParseStatuses(chain.bytes, listener);
  } else {
    listener->OnCorrupt("a record of unknown kind");
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

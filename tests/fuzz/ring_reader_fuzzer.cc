// The input is the shared memory as a hostile process left it: the header, then the slots (without the unused bytes between
// them). If its last byte is odd, another thread goes on writing parts of the input over the memory while it is read.
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <thread>

#include "daemon/ring/ring_reader.h"

namespace stackd {
namespace {

void Check(bool holds) {
  if (!holds) abort();
}

// What the reader promises of a record.
struct Checker : RingReader::Listener {
  void OnThread(ThreadRecord record) override { CheckThread(record); }
  void OnCrash(CrashRecord record) override {
    Check(record.time_ns >= 0);
    Check(record.abort_message.size() <= STACKD_CRASH_TEXT_BYTES &&
          record.exception_type.size() <= STACKD_CRASH_TEXT_BYTES);
    if (record.thread) CheckThread(*record.thread);
  }
  void OnStatus(StatusRecord record) override {
    Check(record.status >= STACKD_STATUS_SIGNAL_BLOCKED && record.status <= STACKD_STATUS_RUNNING);
    statuses++;
  }
  void OnWait(WaitRecord record) override { CheckCall(record.call); }
  void OnSchedStats(SchedStatRecord) override {}
  void OnCorrupt(const char* what) override { Check(what != nullptr); }

  static void CheckThread(const ThreadRecord& record) {
    uint64_t kept = 0;
    for (uint64_t mask : record.masks) kept += static_cast<uint64_t>(std::popcount(mask));
    Check(record.masks.size() == (record.stack_words + 63) / 64 + (record.outer_words + 63) / 64);
    Check(record.words.size() == kept);
    Check(record.stack_words <= kMaxStackBytes / 8);
    Check(record.outer_words <= kMaxStackBytes / 8);
    Check(record.time_ns >= 0 && record.cpu_ns >= 0 && record.handler_ns >= 0);
    CheckCall(record.call);
  }
  static void CheckCall(const std::optional<SystemCall>& call) {
    if (!call) return;
    Check(call->known_arguments < 1u << STACKD_SYSCALL_ARGUMENTS);
    for (int i = 0; i < STACKD_SYSCALL_ARGUMENTS; i++)
      Check(call->knows(i) || call->arguments[static_cast<size_t>(i)] == 0);
  }

  int statuses = 0;
};

// Writes over the memory while the reader reads it.
class Scribbler {
 public:
  Scribbler(char* memory, size_t size_bytes) : memory_(memory), size_bytes_(size_bytes), thread_([this] { Run(); }) {}

  void Start(const uint8_t* data, size_t size_bytes) {
    data_ = data;
    data_bytes_ = size_bytes;
    on_.store(true);
    // Not before it writes is there anything concurrent to see.
    while (!busy_.load()) std::this_thread::yield();
  }
  void Stop() {
    on_.store(false);
    while (busy_.load()) std::this_thread::yield();
  }

 private:
  void Run() {
    uint64_t random = 0x2545f4914f6cdd1d;
    for (;;) {
      if (!on_.load()) {
        busy_.store(false);
        std::this_thread::yield();
        continue;
      }
      busy_.store(true);
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      size_t from = random % data_bytes_;
      size_t to = (random >> 20) % (size_bytes_ / 8) * 8;
      // By words: the reader's atomics must see whole ones, as they would from a process.
      for (size_t i = 0; i < 8 && from + 8 <= data_bytes_ && to + 8 <= size_bytes_; i++, from += 8, to += 8) {
        uint64_t word;
        memcpy(&word, data_ + from, sizeof(word));
        __atomic_store_n(reinterpret_cast<uint64_t*>(memory_ + to), word, __ATOMIC_RELAXED);
      }
    }
  }

  char* const memory_;
  const size_t size_bytes_;
  const uint8_t* data_ = nullptr;
  size_t data_bytes_ = 0;
  std::atomic<bool> on_{false};
  std::atomic<bool> busy_{false};
  std::thread thread_;
};

void FillMemory(Ring* ring, const uint8_t* data, size_t size) {
  char* memory = reinterpret_cast<char*>(ring->header());
  memset(memory, 0, ring->size_bytes());
  size_t header_bytes = std::min(size, sizeof(stackd_ring_header));
  memcpy(memory, data, header_bytes);
  size_t slots_bytes = std::min<size_t>(size - header_bytes, ring->size_bytes() - STACKD_HEADER_BYTES);
  memcpy(memory + STACKD_HEADER_BYTES, data + header_bytes, slots_bytes);
}

}  // namespace
}  // namespace stackd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stackd;
  if (size == 0) return 0;
  // A ring of an odd size, so that the last word of the bitmaps has bits without a slot.
  static Ring* const ring = Ring::Create(STACKD_HEADER_BYTES + 70 * STACKD_SLOT_BYTES)->release();
  static auto* const scribbler = new Scribbler(reinterpret_cast<char*>(ring->header()), ring->size_bytes());
  FillMemory(ring, data, size);
  bool concurrent = size >= 8 && data[size - 1] % 2 == 1;
  if (concurrent) scribbler->Start(data, size);
  RingReader reader(ring);
  Checker checker;
  for (int i = 0; i < 2; i++) {
    int records = reader.Drain(&checker);
    // Each chain has a slot at least, and the last word of bits may go beyond the limit.
    Check(records <= static_cast<int>(2 * ring->slot_count() + 64));
  }
  reader.TakeTentative(static_cast<int64_t>(STACKD_TENTATIVE_NS), &checker);
  reader.Wait(reader.Doorbell() - 1, 1000);
  reader.Interrupt();
  if (concurrent) scribbler->Stop();
  return 0;
}

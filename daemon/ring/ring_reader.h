// Takes committed records out of one agent's ring.
//
// The ring is memory that another process can change at any instant. Every field is copied out once, then checked, then
// used; nothing is read twice.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/ring/ring.h"

namespace stackd {

// One THREAD record, checked: sizes agree with each other, strings are valid UTF-8. Addresses are whatever the process
// says.
struct ThreadRecord {
  uint32_t seq = 0;
  uint32_t tid = 0;
  uint32_t flags = 0;  // stackd_thread_flags
  int64_t handler_ns = 0;
  int64_t time_ns = 0;
  int64_t cpu_ns = 0;
  uint64_t thread_self_avma = 0;
  std::string name;
  uint64_t registers[STACKD_REGISTERS] = {};
  uint64_t stack_base_avma = 0;
  uint32_t stack_words = 0;
  // The thread's own stack where rsp was on another; 0 words: none.
  uint64_t outer_base_avma = 0;
  uint32_t outer_words = 0;
  // As StackCopy takes them: of both.
  std::vector<uint64_t> masks;
  std::vector<uint64_t> words;
};

// One entry of a STATUS record.
struct StatusRecord {
  uint32_t seq = 0;
  uint32_t tid = 0;
  uint8_t status = 0;  // one of stackd_thread_status
  char kernel_state = 0;
  std::string name;
  std::string wait_channel;
};

class RingReader {
 public:
  // A record with more of a stack is corrupt.
  static constexpr uint32_t kMaxStackBytes = 256u << 10;

  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnThread(ThreadRecord record) = 0;
    virtual void OnStatus(StatusRecord record) = 0;
    // A record that made no sense; its slots are free again.
    virtual void OnCorrupt(const char* what) = 0;
  };

  // `ring` must outlive the reader.
  explicit RingReader(Ring* ring) : ring_(ring) {}

  // Takes every record that is ready now and frees its slots. Work and memory are bounded by the size of the ring: a ring
  // whose records share slots is left for further calls. Returns the number of records, good and corrupt.
  int Drain(Listener* listener);

  // How often the agent has rung: to be read before looking at what it may have changed.
  uint32_t Doorbell() const;

  // Waits until the doorbell differs from `seen_doorbell`, at most `timeout_ns`: spins a moment, then sleeps. May return
  // early.
  void Wait(uint32_t seen_doorbell, int64_t timeout_ns);

  // Wakes a Wait() of another thread.
  void Interrupt();

 private:
  struct Chain;

  bool TakeChain(uint32_t first_slot, Chain* chain);
  void Deliver(const Chain& chain, Listener* listener);
  void Free(const Chain& chain);

  Ring* ring_;
};

}  // namespace stackd

// Takes committed records out of one agent's ring.
//
// The ring is memory that another process can change at any instant. Every field is copied out once, then checked, then
// used; nothing is read twice.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>

#include "daemon/ring/record.h"
#include "daemon/ring/ring.h"

namespace stackd {

class RingReader {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnThread(ThreadRecord record) = 0;
    virtual void OnStatus(StatusRecord record) = 0;
    virtual void OnCrash(CrashRecord record) = 0;
    virtual void OnWait(WaitRecord record) = 0;
    virtual void OnSchedStats(SchedStatRecord record) = 0;
    // A record that made no sense; its slots are free again.
    virtual void OnCorrupt(const char* what) = 0;
  };

  // `ring` must outlive the reader.
  explicit RingReader(Ring* ring) : ring_(ring) {}

  // Takes every record that is ready now and frees its slots. Work and memory are bounded by the size of the ring: a ring
  // whose records share slots is left for further calls. Returns the number of records, good and corrupt.
  int Drain(Listener* listener);

  // Takes the crash records that a process which has ended had not taken back. A record of more than
  // STACKD_TENTATIVE_NS before `now_ns` is left; one from the future counts as one of now.
  void TakeTentative(int64_t now_ns, Listener* listener);

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
  static void Deliver(const Chain& chain, Listener* listener);
  static void DeliverCrash(CrashRecord record, Listener* listener);
  void Free(const Chain& chain);

  Ring* ring_;
};

}  // namespace stackd

/* One fault becomes a CRASH record with its thread (ring_abi.h). */
#ifndef STACKD_CRASH_RECORD_H_
#define STACKD_CRASH_RECORD_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/ring/ring_writer.h"

struct stackd_fault {
  int32_t signal_number;
  uint32_t flags; /* stackd_crash_flags known beforehand */
  siginfo_t* info;
  void* context;
};

/* Where words may be found that say why a program ended itself; 0: nowhere. */
struct stackd_last_words {
  uint64_t abort_message;    /* glibc's __abort_msg */
  int64_t exception_globals; /* libstdc++'s __cxa_eh_globals of a thread, from its fs base */
  bool has_exception_globals;
};

/* At install and in the child of a fork. NOT SIGNAL-SAFE. */
void stackd_crash_record_init(void);
void stackd_crash_record_set_last_words(const struct stackd_last_words* words);

/* Whether a process sent the signal, so that the context says where it was met and not why. */
bool stackd_is_sent(const siginfo_t* info) STACKD_HANDLER;

/* Stack that the crash handler needs to write a record, all calls included: tests/safety counts 4,784 as it is built here.
 * The rest is for other compilers. */
#define STACKD_CRASH_STACK_BYTES 5120

struct stackd_crash_sources {
  int maps_fd;         /* < 0: what the helper knows of the address space must do */
  bool by_kernel_only; /* stackd_capture */
};

/* Writes `fault` of the calling thread into at most `max_slots` slots of the crash part of `ring`, not committed.
 * `*first_slot` is set as soon as the record makes sense, before the stack is copied. If there is no room it stays as it
 * is, and that is counted. On a stack that is nearly used up: registers only.
 *
 * HANDLER ONLY. */
void stackd_crash_record_write(const struct stackd_ring* ring, uint32_t max_slots, const struct stackd_fault* fault,
                               struct stackd_crash_sources sources, uint32_t* first_slot) STACKD_HANDLER;

#endif /* STACKD_CRASH_RECORD_H_ */

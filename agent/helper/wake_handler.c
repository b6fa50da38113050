#include "agent/helper/wake_handler.h"

#include "agent/dump/dump_handler.h"
#include "agent/helper/life.h"
#include "agent/signals/repeat_call.h"
#include "agent/signals/sigchain.h"
#include "agent/signals/wake_signal.h"

/* A timeout begins anew once at most, however often the process is dumped: it is over before the next one may. */
STACKD_HANDLER static uint32_t anew_s(void) {
  static uint64_t last_ns;
  uint64_t now_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  if (last_ns != 0 && now_ns - last_ns < STACKD_REPEAT_ANEW_S * 2000000000ull) return 0;
  last_ns = now_ns;
  return STACKD_REPEAT_ANEW_S;
}

void stackd_on_wake_signal(int signal_number, siginfo_t* info, void* context) {
  if (stackd_is_wake_signal(info)) {
    stackd_helper_start();
    stackd_repeat_prepare(anew_s());
    stackd_repeat_call(context);
    return;
  }
  struct stackd_action action = stackd_chain_peek(signal_number);
  /* Else the default action, which is none. */
  if (stackd_chain_is_handled(&action)) stackd_leave_to_program(signal_number, info, context);
}

#include "agent/helper/wake_handler.h"

#include "agent/dump/dump_handler.h"
#include "agent/helper/life.h"
#include "agent/signals/repeat_call.h"
#include "agent/signals/sigchain.h"
#include "agent/signals/wake_signal.h"

void stackd_on_wake_signal(int signal_number, siginfo_t* info, void* context) {
  if (stackd_is_wake_signal(info)) {
    stackd_helper_start();
    stackd_repeat_prepare(STACKD_REPEAT_ANEW_S);
    stackd_repeat_call(context);
    return;
  }
  struct stackd_action action = stackd_chain_peek(signal_number);
  /* Else the default action, which is none. */
  if (stackd_chain_is_handled(&action)) stackd_leave_to_program(signal_number, info, context);
}

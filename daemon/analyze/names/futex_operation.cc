#include "daemon/analyze/names/futex_operation.h"

#include <linux/futex.h>

namespace stackd {
namespace {

const char* CommandName(uint32_t command) {
  switch (command) {
    case FUTEX_WAIT:
      return "FUTEX_WAIT";
    case FUTEX_WAKE:
      return "FUTEX_WAKE";
    case FUTEX_REQUEUE:
      return "FUTEX_REQUEUE";
    case FUTEX_CMP_REQUEUE:
      return "FUTEX_CMP_REQUEUE";
    case FUTEX_WAKE_OP:
      return "FUTEX_WAKE_OP";
    case FUTEX_LOCK_PI:
      return "FUTEX_LOCK_PI";
    case FUTEX_UNLOCK_PI:
      return "FUTEX_UNLOCK_PI";
    case FUTEX_TRYLOCK_PI:
      return "FUTEX_TRYLOCK_PI";
    case FUTEX_WAIT_BITSET:
      return "FUTEX_WAIT_BITSET";
    case FUTEX_WAKE_BITSET:
      return "FUTEX_WAKE_BITSET";
    case FUTEX_WAIT_REQUEUE_PI:
      return "FUTEX_WAIT_REQUEUE_PI";
    case FUTEX_CMP_REQUEUE_PI:
      return "FUTEX_CMP_REQUEUE_PI";
    case FUTEX_LOCK_PI2:
      return "FUTEX_LOCK_PI2";
    default:
      return nullptr;
  }
}

}  // namespace

std::string FutexOperationName(uint32_t operation) {
  const uint32_t command = operation & FUTEX_CMD_MASK;
  const char* known = CommandName(command);
  std::string name = known != nullptr ? known : "futex operation " + std::to_string(command);
  if ((operation & FUTEX_PRIVATE_FLAG) != 0) name += "_PRIVATE";
  if ((operation & FUTEX_CLOCK_REALTIME) != 0) name += "|FUTEX_CLOCK_REALTIME";
  return name;
}

}  // namespace stackd

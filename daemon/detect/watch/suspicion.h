// That a process hangs, as the detector sees it: the order for a dump.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/capture/capture.h"
#include "daemon/detect/rules/rules.h"

namespace stackd {

struct Suspicion {
  std::string process_id;
  std::string process_name;
  // Equal for the same hang of the same process, seen twice: "heartbeat event-loop", "deadlock 12>0x7f00 13>0x7f40".
  std::string subject;
  HangCapture hang;
  std::shared_ptr<const Rule> rule;
  int64_t seen_ns = 0;
  int failed_dumps = 0;      // of the desk
  bool is_inferred = false;  // from stacks, and not from the words of locks: the health stays
  // Set by the detector: it is over by itself, and a dump would show nothing of it.
  std::atomic<bool> over = false;
};

using SharedSuspicion = std::shared_ptr<Suspicion>;

}  // namespace stackd

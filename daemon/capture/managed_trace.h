// What the runtime of a language knows of a thread's stack, as the agent wrote it into the thread's record.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stackd/ring_abi.h"

namespace stackd {

struct ManagedTraceFrame {
  uint16_t flags = 0;        // stackd_managed_frame_flags
  uint64_t anchor_avma = 0;  // an address in the native frame that runs it; 0: of the same as the frame before
  uint64_t key = 0;          // of its symbol
  int64_t position = 0;
};

// Texts are what the process says, in whatever encoding; they lie in the `entries` of the trace.
struct ManagedSymbol {
  uint64_t key = 0;
  uint32_t first_line = 0;  // 0: not known
  uint32_t table_format = 0;
  std::string_view function;
  std::string_view file;
  std::string_view table;

  bool operator==(const ManagedSymbol&) const = default;
};

struct ManagedTrace {
  uint32_t runtime = 0;  // stackd_runtime
  uint16_t flags = 0;    // stackd_managed_runtime_flags
  int32_t status = 0;    // stackd_walk_status
  uint64_t version = 0;
  uint64_t instance_avma = 0;
  std::vector<ManagedTraceFrame> frames;       // innermost first
  std::vector<ManagedSymbol> symbols;          // the first with a key counts
  std::shared_ptr<const std::string> entries;  // of the whole record
};

}  // namespace stackd

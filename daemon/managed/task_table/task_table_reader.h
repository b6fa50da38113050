// Tasks that the process told of itself: a stackd_task_table (wire.h), as the crate for Rust writes one of tokio's tasks.
#pragma once

#include <cstddef>

#include "daemon/managed/runtime_reader.h"

namespace stackd {

class TaskTableReader : public RuntimeReader {
 public:
  // What a table holds beyond these is left out, with a note.
  static constexpr size_t kMaxTasks = 20'000;
  static constexpr size_t kMaxAddresses = 500'000;

  void Read(const RuntimeInput& input, ManagedFacts* facts) override;
};

}  // namespace stackd

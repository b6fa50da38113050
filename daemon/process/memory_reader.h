// Reads the memory of a process without waiting for it.
//
// A reader of another process's memory waits while the kernel changes that address space (an munmap of gigabytes). It also
// waits for a page whose file lies on a server that does not answer. That takes seconds or never ends, and a process that
// hangs is likely to be in such a state. So memory is read on a thread of its own, which is given up at a deadline.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "daemon/process/process_files.h"

namespace stackd {

// Reader of one process's memory. Thread-safe.
class MemoryReader {
 public:
  using Work = std::function<void(const ProcessFiles&)>;

  // Limits for reads that run: each that hangs holds a thread. More than one for a process, so that a look at a hung
  // process does not fail its dump. Limited for all together, so that the daemon does not run out of threads.
  static constexpr int kMaxRunning = 4;
  static constexpr int kMaxRunningOfAll = 64;

  explicit MemoryReader(std::shared_ptr<const ProcessFiles> files);

  // Returns whether `work` ended by the deadline. It runs on another thread, and may go on after this has returned: it must
  // own what it uses. False also if too many earlier ones still hang.
  bool Run(int64_t deadline_ns, Work work) const;
  int64_t read_bytes() const { return files_->memory_read_bytes(); }

 private:
  const std::shared_ptr<const ProcessFiles> files_;
  const std::shared_ptr<std::atomic<int>> running_;
};

}  // namespace stackd

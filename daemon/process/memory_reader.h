// Reads the memory of a process without waiting for it.
//
// Whoever reads memory of a process waits while the kernel changes its address space (an munmap of gigabytes), or brings in
// a page whose file lies on a server that does not answer: for seconds or for ever, and a process that hangs is likely to
// be in such a state. So it is read on a thread of its own, and given up at a deadline.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "daemon/process/process_files.h"

namespace stackd {

// Of one process. Thread-safe.
class MemoryReader {
 public:
  using Work = std::function<void(const ProcessFiles&)>;

  // Each that hangs holds a thread. More than one, so that a look at a hung process does not fail its dump; of all
  // processes together so many that the daemon's threads do not run out.
  static constexpr int kMaxRunning = 4;
  static constexpr int kMaxRunningOfAll = 64;

  explicit MemoryReader(std::shared_ptr<const ProcessFiles> files);

  // Whether `work` ended by the deadline. It runs on another thread, and may go on after this has returned: it must own
  // what it uses. False also if too many earlier ones still hang.
  bool Run(int64_t deadline_ns, Work work) const;
  int64_t read_bytes() const { return files_->memory_read_bytes(); }

 private:
  const std::shared_ptr<const ProcessFiles> files_;
  const std::shared_ptr<std::atomic<int>> running_;
};

}  // namespace stackd

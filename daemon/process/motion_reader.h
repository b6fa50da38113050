// How often and how long the threads of one process have run.
//
// Half of what a look costs is the kernel's search for the file of each thread. Of a process with many threads these files
// are kept open: of all processes together as many as kMaxFiles, since each is an fd, and 4 KiB in the kernel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/capture/waits.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Thread-safe.
class MotionReader {
 public:
  // A process with fewer threads costs little either way.
  static constexpr size_t kManyThreads = 256;
  static constexpr int kMaxFiles = 4096;
  static constexpr size_t kMaxFilesOfOne = 2048;

  explicit MotionReader(std::shared_ptr<const ProcessFiles> files);
  ~MotionReader();
  MotionReader(const MotionReader&) = delete;
  MotionReader& operator=(const MotionReader&) = delete;

  // Of each thread, by tid; kUnavailable where the kernel does not tell, the process has ended, or has more
  // threads than can be looked at.
  Result<std::vector<ThreadMotion>> Read();

  // Kept open now, of all processes.
  static int open_files();

 private:
  struct Kept {
    Fd file;
    uint64_t look;  // at which the thread was there
  };

  // Requires: mutex_ is held. nullopt: the threads are not these.
  std::optional<std::vector<ThreadMotion>> ReadKept(const Fd& tasks);
  void Forget(std::map<int32_t, Kept>::iterator kept);

  const std::shared_ptr<const ProcessFiles> files_;
  std::mutex mutex_;
  uint64_t looks_ = 0;
  std::map<int32_t, Kept> kept_;  // by tid
};

}  // namespace stackd

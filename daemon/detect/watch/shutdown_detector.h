// Whether a process was told to end, and is still there.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/capture/waits.h"
#include "daemon/detect/watch/watched_process.h"

namespace stackd {

class ShutdownDetector {
 public:
  explicit ShutdownDetector(const WatchedProcess* process) : process_(*process) {}

  int64_t due_ns() const { return due_ns_; }
  // `stretch` is a factor for the time to the next look, 1 or more.
  void Look(int64_t now_ns, int64_t stretch);
  // The process is gone.
  void EndSuspicions() { EndSuspicion(&suspicion_); }

 private:
  // Notes what has come of SIGTERM. What was taken before the first look does not count: it may have been the parent that
  // was told.
  void Note(const SigtermSigns& signs, int64_t now_ns);

  const WatchedProcess& process_;
  int64_t due_ns_ = 0;
  std::optional<uint64_t> taken_count_;
  bool was_pending_ = false;
  bool has_taken_ = false;     // what told_ns_ is of
  int64_t told_ns_ = 0;        // no later than this it was told; 0: it was not, or that was reported
  SharedSuspicion suspicion_;  // the last
};

}  // namespace stackd

// Whether a process was told to end, and is still there.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/capture/waits.h"

namespace stackd {

class SigtermWatch {
 public:
  struct Survivor {
    int64_t since_ns;  // no later than this it was told
    bool has_taken;    // false: it does not even take the signal
  };

  // A look. Gives, once for each time that it is told to end, that it is there `after_ns` later. What was taken before the
  // first look does not count: it may have been the parent that was told.
  std::optional<Survivor> Look(const SigtermSigns& signs, int64_t now_ns, int64_t after_ns);

 private:
  std::optional<uint64_t> taken_count_;
  bool was_pending_ = false;
  bool has_taken_ = false;  // what told_ns_ is of
  int64_t told_ns_ = 0;     // 0: it was not told, or that was reported
};

}  // namespace stackd

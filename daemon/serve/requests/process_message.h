#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/detect/watch/suspicion.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

v1::Process ProcessMessage(const ProcessDescription& process);

// What changes all the time, beside ProcessMessage.
struct ProcessNow {
  int32_t parent_pid = 0;                   // 0: not known
  std::optional<int64_t> cpu_time_ns;       // of all its threads, in its life
  std::optional<int32_t> moving_threads;    // nullopt: they are not looked at
  std::vector<SharedSuspicion> suspicions;  // that are not over
  int64_t now_ns = 0;                       // in the clock of the suspicions
};
void AddNow(const ProcessNow& now, v1::Process* message);

}  // namespace stackd

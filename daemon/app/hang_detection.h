// Notices hangs and has them dumped: the detector, its view of the processes, and what comes of a suspicion.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "daemon/base/result.h"
#include "daemon/collect/collector.h"
#include "daemon/detect/respond/process_health.h"
#include "daemon/detect/rules/rules.h"
#include "daemon/pipeline/pipeline.h"

namespace stackd {

// Thread-safe.
class HangDetection {
 public:
  // The first three must outlive it. `address`: where the rules' programs find this daemon. Fails with one sentence if one
  // of these cannot be run.
  static Result<std::unique_ptr<HangDetection>> Start(Collector* collector, Pipeline* pipeline, ProcessHealth* health,
                                                      Rules rules, const std::string& address);
  ~HangDetection();

  // As Detector::MovingThreads.
  std::optional<int32_t> MovingThreads(const std::string& process_id) const;

  // Since start, by name: "hang_looks", "hangs_deadlock", "hang_dumps", ...
  std::map<std::string, int64_t> Counters() const;

 private:
  struct State;
  explicit HangDetection(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stackd

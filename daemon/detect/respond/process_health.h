// Which processes are not well, by display name.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/detect/watch/suspicion.h"

namespace stackd {

enum class Health : uint8_t { kUnknown, kWell, kIll };

// Thread-safe.
class ProcessHealth {
 public:
  // `processes` gives those that are connected.
  explicit ProcessHealth(std::function<std::vector<ProcessDescription>()> processes);

  // Health of the connected processes with that display name: ill if one of them is. kUnknown: there is none.
  Health Of(const std::string& display_name) const;
  // Health of each display name that there is.
  std::map<std::string, Health> OfAll() const;
  // The process is ill until the suspicion is over.
  void SetIll(SharedSuspicion suspicion);

 private:
  bool IsIll(const std::string& process_id) const;

  const std::function<std::vector<ProcessDescription>()> processes_;
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<SharedSuspicion>> ailments_;  // by process id
};

}  // namespace stackd

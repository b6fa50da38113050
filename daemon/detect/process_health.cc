#include "daemon/detect/process_health.h"

#include <algorithm>
#include <utility>

namespace stackd {

ProcessHealth::ProcessHealth(std::function<std::vector<ProcessDescription>()> processes)
    : processes_(std::move(processes)) {}

Health ProcessHealth::Of(const std::string& display_name) const {
  Health health = Health::kUnknown;
  for (const ProcessDescription& process : processes_()) {
    if (process.display_name != display_name) continue;
    health = Health::kWell;
    std::lock_guard lock(mutex_);
    const auto ailments = ailments_.find(process.id);
    const auto lasts = [](const SharedSuspicion& suspicion) { return !suspicion->over; };
    if (ailments != ailments_.end() && std::ranges::any_of(ailments->second, lasts)) return Health::kIll;
  }
  return health;
}

void ProcessHealth::SetIll(SharedSuspicion suspicion) {
  std::lock_guard lock(mutex_);
  for (auto& [id, ailments] : ailments_) {
    std::erase_if(ailments, [](const SharedSuspicion& earlier) { return earlier->over.load(); });
  }
  std::erase_if(ailments_, [](const auto& entry) { return entry.second.empty(); });
  ailments_[suspicion->process_id].push_back(std::move(suspicion));
}

}  // namespace stackd

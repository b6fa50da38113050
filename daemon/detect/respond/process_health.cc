#include "daemon/detect/respond/process_health.h"

#include <algorithm>
#include <utility>

namespace stackd {

ProcessHealth::ProcessHealth(std::function<std::vector<ProcessDescription>()> processes)
    : processes_(std::move(processes)) {}

bool ProcessHealth::IsIll(const std::string& process_id) const {
  std::lock_guard lock(mutex_);
  const auto ailments = ailments_.find(process_id);
  const auto lasts = [](const SharedSuspicion& suspicion) { return !suspicion->over; };
  return ailments != ailments_.end() && std::ranges::any_of(ailments->second, lasts);
}

std::map<std::string, Health> ProcessHealth::OfAll() const {
  std::map<std::string, Health> health;
  for (const ProcessDescription& process : processes_()) {
    Health& of_name = health.emplace(process.display_name, Health::kWell).first->second;
    if (IsIll(process.id)) of_name = Health::kIll;
  }
  return health;
}

Health ProcessHealth::Of(const std::string& display_name) const {
  const std::map<std::string, Health> health = OfAll();
  const auto found = health.find(display_name);
  return found == health.end() ? Health::kUnknown : found->second;
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

#include "daemon/detect/respond/process_health.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stackd {

bool MakesIll(const Suspicion& suspicion) {
  if (suspicion.is_inferred) return false;
  return suspicion.hang.cause == HangCause::kHeartbeatMissed || suspicion.hang.cause == HangCause::kDeadlock;
}

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

void ProcessHealth::Add(SharedSuspicion suspicion, ByProcessId* suspicions) {
  for (auto& [id, of_process] : *suspicions) {
    std::erase_if(of_process, [](const SharedSuspicion& earlier) { return earlier->over.load(); });
  }
  std::erase_if(*suspicions, [](const auto& entry) { return entry.second.empty(); });
  (*suspicions)[suspicion->process_id].push_back(std::move(suspicion));
}

void ProcessHealth::SetIll(SharedSuspicion suspicion) {
  std::lock_guard lock(mutex_);
  Add(std::move(suspicion), &ailments_);
}

void ProcessHealth::Note(SharedSuspicion suspicion) {
  std::lock_guard lock(mutex_);
  Add(std::move(suspicion), &noted_);
}

std::vector<SharedSuspicion> ProcessHealth::SuspicionsOf(const std::string& process_id) const {
  std::vector<SharedSuspicion> last;
  std::lock_guard lock(mutex_);
  const auto noted = noted_.find(process_id);
  if (noted == noted_.end()) return last;
  std::ranges::copy_if(noted->second, std::back_inserter(last), [](const auto& suspicion) { return !suspicion->over; });
  return last;
}

}  // namespace stackd

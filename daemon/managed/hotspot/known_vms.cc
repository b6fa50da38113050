#include "daemon/managed/hotspot/known_vms.h"

#include <algorithm>

namespace stackd::hotspot {

std::shared_ptr<const KnownVm> KnownVms::Find(const VmKey& key) const {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(vms_, key, &Entry::first);
  return found == vms_.end() ? nullptr : found->second;
}

void KnownVms::Keep(VmKey key, std::shared_ptr<const KnownVm> vm) {
  std::lock_guard lock(mutex_);
  // Two dumps at once may both have found it.
  if (std::ranges::find(vms_, key, &Entry::first) != vms_.end()) return;
  if (vms_.size() >= kMaxVms) vms_.pop_front();
  vms_.emplace_back(std::move(key), std::move(vm));
}

}  // namespace stackd::hotspot

#include "daemon/otlp/dump_quota.h"

namespace stackd {

bool DumpQuota::Take(const std::string& fingerprint) {
  if (per_fingerprint_ == 0) return false;
  const auto known = by_fingerprint_.find(fingerprint);
  if (known != by_fingerprint_.end()) {
    counts_.splice(counts_.begin(), counts_, known->second);
  } else {
    counts_.emplace_front(fingerprint, 0);
    by_fingerprint_[fingerprint] = counts_.begin();
  }
  if (counts_.size() > kMaxFingerprints) {
    by_fingerprint_.erase(counts_.back().first);
    counts_.pop_back();
  }
  int64_t& count = counts_.front().second;
  if (count >= per_fingerprint_) return false;
  ++count;
  return true;
}

void DumpQuota::GiveBack(const std::string& fingerprint) {
  const auto known = by_fingerprint_.find(fingerprint);
  if (known != by_fingerprint_.end() && known->second->second > 0) --known->second->second;
}

}  // namespace stackd

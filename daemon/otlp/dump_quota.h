// Which dumps are sent whole: the first few of each fingerprint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace stackd {

// One thread at a time.
class DumpQuota {
 public:
  // Counts that many fingerprints. Beyond them, that which was seen last longest ago begins anew.
  static constexpr size_t kMaxFingerprints = 4096;

  // 0: none is sent.
  explicit DumpQuota(int64_t per_fingerprint) : per_fingerprint_(per_fingerprint) {}

  // True: this dump is among the first.
  bool Take(const std::string& fingerprint);
  // The dump was not sent after all; another takes its place.
  void GiveBack(const std::string& fingerprint);

 private:
  using Counts = std::list<std::pair<std::string, int64_t>>;

  const int64_t per_fingerprint_;
  Counts counts_;  // seen last comes first
  std::unordered_map<std::string, Counts::iterator> by_fingerprint_;
};

}  // namespace stackd

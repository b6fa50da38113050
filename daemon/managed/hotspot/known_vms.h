// What was learnt of VMs, kept from dump to dump: a third of a reading is the VM's description of itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/managed/hotspot/layout.h"

namespace stackd::hotspot {

struct KnownVm {
  Layout layout;
  std::string version;
};

// One libjvm in one process, since it connected: an exec connects anew. The file is no key, because its tables lie in
// memory that the process may write. What one process says of itself must not name the frames of another.
struct VmKey {
  bool operator==(const VmKey&) const = default;

  std::string process_id;
  int64_t connect_wall_ns;
  uint64_t libjvm_avma;
};

// Cache of the VMs that were found last. Thread-safe.
class KnownVms {
 public:
  static constexpr size_t kMaxVms = 256;

  // nullptr: it is not known.
  std::shared_ptr<const KnownVm> Find(const VmKey& key) const;
  void Keep(VmKey key, std::shared_ptr<const KnownVm> vm);

 private:
  using Entry = std::pair<VmKey, std::shared_ptr<const KnownVm>>;

  mutable std::mutex mutex_;
  std::deque<Entry> vms_;  // oldest first
};

}  // namespace stackd::hotspot

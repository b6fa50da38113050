// Functions of a Go program that unlock what they did not lock, by the code of all of it. And whether one of them may be
// called by what no stack shows: a timer, a finalizer, a connection to come, C.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/managed/go/pclntab.h"
#include "daemon/modules/module.h"

namespace stackd {

// Immutable, and the same for all processes that run the file.
class GoLockReleases {
 public:
  // Empty where not all of the code could be read by the deadline, or another thread reads that of a file. `functions` must
  // outlive the call.
  static std::shared_ptr<const GoLockReleases> Find(const Module& module, const Pclntab& functions, uint64_t text_svma,
                                                    int64_t deadline_ns);

  uint64_t text_svma() const { return text_svma_; }
  // Whether such a function is kept as a value, or called by reflection, by an interface or by another module.
  bool may_be_called_unseen() const { return may_be_called_unseen_; }
  // Whether the function, or one that it calls or starts, unlocks what none of them has locked. By entry.
  bool Releases(uint32_t entry) const;
  // Whether the function calls methods of an interface which may be those of sync.Locker. None does where the program makes
  // none.
  bool MayUseLocker(uint32_t entry) const;

 private:
  friend class GoReleaseFinder;
  GoLockReleases() = default;

  uint64_t text_svma_ = 0;
  bool may_be_called_unseen_ = false;
  std::vector<uint32_t> releasing_;     // sorted
  std::vector<uint32_t> locker_users_;  // sorted
};

}  // namespace stackd

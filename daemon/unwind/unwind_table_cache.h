// Unwind tables of modules, shared by all Unwinders: those used last, as far as they fit.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "daemon/modules/module.h"
#include "daemon/unwind/unwind_table.h"

namespace stackd {

// Thread-safe. Two threads that need the same module's table wait for one compilation; other modules are not held up by it.
class UnwindTableCache {
 public:
  explicit UnwindTableCache(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Never nullptr. A table may live longer in its users' hands than in the cache.
  std::shared_ptr<const UnwindTable> Get(const Module& module);

  size_t memory_bytes() const;

 private:
  struct Entry {
    FileIdentity identity;
    std::once_flag compiled;
    std::shared_ptr<const UnwindTable> table;
    size_t memory_bytes = 0;  // 0 until compiled
  };

  std::shared_ptr<Entry> Find(const FileIdentity& identity);
  void Charge(const std::shared_ptr<Entry>& entry);

  const size_t limit_bytes_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<Entry>> by_use_;  // last used first
  std::map<FileIdentity, std::list<std::shared_ptr<Entry>>::iterator> by_identity_;
  size_t memory_bytes_ = 0;
};

}  // namespace stackd

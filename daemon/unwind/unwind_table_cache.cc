#include "daemon/unwind/unwind_table_cache.h"

namespace stackd {

std::shared_ptr<const UnwindTable> UnwindTableCache::Get(const Module& module) {
  std::shared_ptr<Entry> entry = Find(module.identity());
  std::call_once(entry->compiled, [&] {
    entry->table = UnwindTable::Compile(module);
    Charge(entry);
  });
  return entry->table;
}

size_t UnwindTableCache::memory_bytes() const {
  std::lock_guard lock(mutex_);
  return memory_bytes_;
}

std::shared_ptr<UnwindTableCache::Entry> UnwindTableCache::Find(const FileIdentity& identity) {
  std::lock_guard lock(mutex_);
  auto found = by_identity_.find(identity);
  if (found != by_identity_.end()) {
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return by_use_.front();
  }
  by_use_.push_front(std::make_shared<Entry>());
  by_use_.front()->identity = identity;
  by_identity_.emplace(identity, by_use_.begin());
  return by_use_.front();
}

void UnwindTableCache::Charge(const std::shared_ptr<Entry>& entry) {
  constexpr size_t kEntryOverheadBytes = 512;
  std::lock_guard lock(mutex_);
  // The entry may have been dropped while it was compiled.
  auto found = by_identity_.find(entry->identity);
  if (found == by_identity_.end() || *found->second != entry) return;
  entry->memory_bytes = entry->table->memory_bytes() + kEntryOverheadBytes;
  memory_bytes_ += entry->memory_bytes;
  // The newest stays even if it alone is over the limit, else it would be compiled again at once.
  while (memory_bytes_ > limit_bytes_ && by_use_.size() > 1) {
    memory_bytes_ -= by_use_.back()->memory_bytes;
    by_identity_.erase(by_use_.back()->identity);
    by_use_.pop_back();
  }
}

}  // namespace stackd

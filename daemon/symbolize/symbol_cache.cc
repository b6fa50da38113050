#include "daemon/symbolize/symbol_cache.h"

#include <algorithm>
#include <utility>

namespace stackd {
namespace {

// With the hash table's node and bucket; measured against the heap, within a fifth.
constexpr uint64_t kSlotBytes = sizeof(SymbolSlot) + 48;
constexpr uint64_t kModuleBytes = sizeof(SymbolModule) + sizeof(FileIdentity) + 128;

uint64_t HeapBytes(const std::string& text) { return text.capacity() < sizeof(std::string) / 2 ? 0 : text.capacity() + 17; }

uint64_t BytesOf(const SourceLocation* location) {
  if (location == nullptr) return 0;
  uint64_t bytes =
      sizeof(SourceLocation) + 32 + location->frames.capacity() * sizeof(SourceFrame) + HeapBytes(location->unnamed_reason);
  for (const SourceFrame& frame : location->frames) bytes += HeapBytes(frame.function) + HeapBytes(frame.file);
  return bytes;
}

bool IsUsed(const SymbolSlot& slot) { return slot.names_pending || slot.lines_pending || slot.waiters > 0; }

}  // namespace

SymbolModule& SymbolCache::GetModule(const Module& module) {
  auto [it, is_new] = modules_.try_emplace(module.identity());
  if (is_new) {
    it->second.id = next_id_++;
    it->second.path = module.path();
    size_bytes_ += kModuleBytes;
  }
  it->second.last_use = generation_;
  return it->second;
}

const SymbolModule* SymbolCache::FindModule(const Module& module) const {
  auto it = modules_.find(module.identity());
  return it == modules_.end() ? nullptr : &it->second;
}

SymbolSlot& SymbolCache::GetSlot(SymbolModule& module, uint64_t svma) {
  auto [it, is_new] = module.slots.try_emplace(svma);
  if (is_new) size_bytes_ += kSlotBytes;
  it->second.last_use = generation_;
  return it->second;
}

void SymbolCache::Set(SymbolSlot& slot, std::shared_ptr<const SourceLocation> location, bool is_final) {
  size_bytes_ += BytesOf(location.get());
  size_bytes_ -= BytesOf(slot.location.get());
  slot.location = std::move(location);
  slot.is_final = is_final;
}

void SymbolCache::Forget(const Module& module) {
  if (auto node = modules_.extract(module.identity())) forgotten_.push_back(std::move(node));
  DropForgotten();
}

void SymbolCache::DropForgotten() {
  std::erase_if(forgotten_, [this](const Modules::node_type& node) {
    const SymbolModule& module = node.mapped();
    const bool waits = !module.waiting[0].empty() || !module.waiting[1].empty();
    const bool is_used = std::ranges::any_of(module.slots, [](const auto& slot) { return IsUsed(slot.second); });
    if (module.users > 0 || waits || is_used) return false;
    for (const auto& [svma, slot] : module.slots) size_bytes_ -= kSlotBytes + BytesOf(slot.location.get());
    size_bytes_ -= kModuleBytes;
    return true;
  });
}

void SymbolCache::EnforceLimit() {
  DropForgotten();
  if (size_bytes_ <= limit_bytes_) return;
  EvictUsedBefore(generation_);
  // Down to three quarters, so that a cache at its limit is not swept for every new name.
  if (size_bytes_ > limit_bytes_ / 4 * 3) EvictUsedBefore(generation_ + 1);
  ++generation_;
}

void SymbolCache::EvictUsedBefore(uint32_t generation) {
  for (auto module = modules_.begin(); module != modules_.end();) {
    auto& slots = module->second.slots;
    for (auto it = slots.begin(); it != slots.end();) {
      const SymbolSlot& slot = it->second;
      if (slot.last_use >= generation || IsUsed(slot)) {
        ++it;
        continue;
      }
      size_bytes_ -= kSlotBytes + BytesOf(slot.location.get());
      it = slots.erase(it);
    }
    if (slots.empty() && module->second.users == 0 && module->second.last_use < generation) {
      size_bytes_ -= kModuleBytes;
      module = modules_.erase(module);
    } else {
      ++module;
    }
  }
}

}  // namespace stackd

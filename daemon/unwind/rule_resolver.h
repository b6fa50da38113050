// Which unwind rule holds at an address of a process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "daemon/modules/address_map.h"
#include "daemon/unwind/unwind_table.h"

namespace stackd {

// A cache of rules by address, in front of the modules' tables. Valid for one address map at a time.
class RuleResolver {
 public:
  RuleResolver() : slots_(kSlots) {}

  // To be called before Resolve whenever the map may be another one.
  void UseMap(const AddressMap& map) {
    if (map.id() != map_id_) StartMap(map.id());
  }

  UnwindRule Resolve(const AddressMap& map, uint64_t avma) {
    Slot& slot = slots_[avma * 0x9e3779b97f4a7c15 >> (64 - kSlotBits)];
    if (slot.avma == avma && slot.epoch == epoch_) [[likely]]
      return slot.rule;
    slot = {avma, ResolveAnew(map, avma), epoch_};
    return slot.rule;
  }

  // The function that holds `avma`, by its CFI; nullopt if it has none.
  std::optional<UnwindTable::Function> FunctionAt(const Mapping& mapping, uint64_t avma);

  // Finds the row where the rule is kSlow.
  std::optional<UnwindTable::PreciseRow> Interpret(const AddressMap& map, uint64_t avma);

 private:
  struct Slot {
    uint64_t avma = 0;
    UnwindRule rule;
    uint32_t epoch = 0;
  };
  static constexpr unsigned kSlotBits = 14;
  static constexpr size_t kSlots = size_t{1} << kSlotBits;

  void StartMap(uint64_t map_id);
  UnwindRule ResolveAnew(const AddressMap& map, uint64_t avma);
  const UnwindTable& TableOf(const Module& module);

  std::vector<Slot> slots_;
  uint32_t epoch_ = 0;  // of slots of this map; a new map empties them all at once
  uint64_t map_id_ = 0;
  // Tables of the map's modules, held so that none is compiled twice for it.
  std::unordered_map<const Module*, std::shared_ptr<const UnwindTable>> tables_;
  uint64_t cfi_bytes_of_map_ = 0;
};

}  // namespace stackd

// References of the collector ZGC: addresses with colour bits, which say what the collector has done about a reference.
//
// With one generation (releases 11 to 23) the heap is mapped once for each colour, so that the word is an address. With two
// (21 and later) the address stands above the colours.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/managed/hotspot/process_memory.h"
#include "daemon/managed/hotspot/vm_structs.h"

namespace stackd::hotspot {

// Where one ZGC of a libjvm keeps the facts that its references are read by.
struct ZgcLayout {
  uint64_t heap_avma = 0;  // of a variable that points to the heap
  uint64_t heap_pages = 0, page_bits = 0;
  std::optional<uint64_t> page_top;  // of a page; release 11 does not say
  // An offset in the heap has so many bits: a constant up to release 14, else of a variable.
  std::optional<uint64_t> offset_bits;
  uint64_t globals_avma = 0, offset_mask = 0;  // of a variable that points to pointers to variables; in these pointers
  // Set if there are two generations.
  std::optional<uint64_t> good_mask, bad_mask, shift;
};

// `prefix`: 'Z', or 'X' for that of one generation in a libjvm that has both. nullopt: it does not say.
std::optional<ZgcLayout> MakeZgcLayout(const VmStructs& structs, char prefix);

class ZgcReferences {
 public:
  static std::optional<ZgcReferences> Open(ProcessMemory* memory, const ZgcLayout& layout);

  // Address of the object: the same for all colours. 0: null, or the object was moved and the reference is not updated yet.
  // Until the collector or the program updates it, only the VM can follow it.
  uint64_t At(uint64_t reference);
  // Address of the object that a thread's own word refers to: with two generations such words have no colours.
  uint64_t Plain(uint64_t word) const { return (word & offset_mask_) | (offset_mask_ + 1); }
  // Whether any was not updated yet.
  bool has_moved() const { return has_moved_; }

 private:
  ZgcReferences(ProcessMemory* memory, const ZgcLayout& layout) : memory_(memory), layout_(layout) {}

  ProcessMemory* memory_;
  ZgcLayout layout_;
  uint64_t offset_mask_ = 0;
  uint64_t remapped_mask_ = 0;  // colours that say how far to shift; 0: one generation
  uint64_t pages_avma_ = 0;
  bool has_moved_ = false;
};

}  // namespace stackd::hotspot

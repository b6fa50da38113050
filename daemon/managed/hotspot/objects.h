// Objects on the Java heap: their classes, and those of their fields that locks and threads consist of.
//
// The heap moves under the reader. What it reads is believed only as far as it is checked: a class by its name, a thread by
// the VM's own list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "daemon/base/result.h"
#include "daemon/managed/hotspot/layout.h"
#include "daemon/managed/hotspot/process_memory.h"
#include "daemon/managed/hotspot/zgc.h"

namespace stackd::hotspot {

class Objects {
 public:
  // An error names the part of the VM that cannot be read.
  static Result<Objects> Open(ProcessMemory* memory, const Layout& layout);

  // Address of the object that one of the VM's own words refers to; 0: null, or not known (has_moved).
  uint64_t At(uint64_t reference) { return zgc_ ? zgc_->At(reference) : reference; }
  // Address of the object that a word on a thread's stack refers to.
  uint64_t AtOnStack(uint64_t word) const { return zgc_ ? zgc_->Plain(word) : word; }
  // Whether the collector has moved objects, and not yet updated all references to them that were met.
  bool has_moved() const { return zgc_ && zgc_->has_moved(); }
  // "java.lang.Object".
  std::optional<std::string> ClassOf(uint64_t object_avma);
  // The object that a field refers to, of the class `declared_by` or one above; 0: null, or as At, or there is no such
  // field.
  uint64_t Reference(uint64_t object_avma, std::string_view declared_by, std::string_view field);
  // The number in a field of type long, found in the same way.
  std::optional<uint64_t> Long(uint64_t object_avma, std::string_view declared_by, std::string_view field);
  // Text of a java.lang.String with at most `max_characters`.
  std::optional<std::string> Text(uint64_t string_avma, size_t max_characters);

 private:
  Objects(ProcessMemory* memory, const Layout& layout) : memory_(memory), layout_(layout) {}

  uint64_t KlassOf(uint64_t object_avma);
  // Offset of a field that `klass_avma` or a class above it declares.
  std::optional<uint64_t> FieldOffset(uint64_t klass_avma, std::string_view declared_by, std::string_view field);
  std::optional<uint64_t> FieldOffsetInTuples(uint64_t klass_avma, uint64_t pool_avma, std::string_view field);
  std::optional<uint64_t> FieldOffsetInStream(uint64_t klass_avma, uint64_t pool_avma, std::string_view field);

  ProcessMemory* memory_;
  const Layout& layout_;
  bool narrow_references_ = false, narrow_classes_ = false, compact_headers_ = false;
  std::optional<ZgcReferences> zgc_;
  uint64_t reference_base_ = 0, class_base_ = 0;
  uint32_t reference_shift_ = 0, class_shift_ = 0;
  std::unordered_map<std::string, std::optional<uint64_t>> offsets_;  // by "class.field"
};

}  // namespace stackd::hotspot

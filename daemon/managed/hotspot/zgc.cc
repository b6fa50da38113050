#include "daemon/managed/hotspot/zgc.h"

#include <bit>
#include <string>
#include <string_view>

namespace stackd::hotspot {
namespace {

constexpr uint64_t kMinOffsetBits = 32, kMaxOffsetBits = 48;
constexpr uint64_t kMaxPageBits = 32;
// In a table of pages (release 11): the page is being moved, or has been. Pages are aligned.
constexpr uint64_t kRelocating = 1;

}  // namespace

std::optional<ZgcLayout> MakeZgcLayout(const VmStructs& structs, char prefix) {
  // "?" stands for the prefix.
  const auto name = [&](std::string_view pattern) {
    std::string text(pattern);
    for (char& c : text) c = c == '?' ? prefix : c;
    return text;
  };
  const auto offset = [&](std::string_view pattern) { return structs.Offset(name(pattern)); };
  const auto first = [](std::optional<uint64_t> one, std::optional<uint64_t> other) { return one ? one : other; };

  ZgcLayout layout;
  const auto heap_avma = structs.Address("Universe._collectedHeap");
  const auto heap = offset("?CollectedHeap._heap");
  const auto table = first(offset("?Heap._page_table"), offset("?Heap._pagetable"));
  const auto map = offset("?PageTable._map");
  const auto entries = first(offset("?GranuleMapForPageTable._map"), offset("?AddressRangeMapForPageTable._map"));
  const auto page_bits = first(structs.Constant(name("?GranuleSizeShift")), structs.Constant(name("?PageSizeMinShift")));
  const auto globals_avma = structs.Address(name("?GlobalsForVMStructs._instance_p"));
  if (!heap_avma || !heap || !table || !map || !entries || !page_bits || !globals_avma || *page_bits > kMaxPageBits) {
    return std::nullopt;
  }
  layout.heap_avma = *heap_avma;
  layout.heap_pages = *heap + *table + *map + *entries;
  layout.page_bits = *page_bits;
  layout.page_top = offset("?Page._top");
  layout.globals_avma = *globals_avma;
  if (const auto mask = offset("?GlobalsForVMStructs._?AddressOffsetMask")) {
    layout.offset_mask = *mask;
  } else {
    layout.offset_bits = structs.Constant(name("?AddressOffsetBits"));
    if (!layout.offset_bits) return std::nullopt;
  }
  layout.good_mask = offset("?GlobalsForVMStructs._?PointerLoadGoodMask");
  layout.bad_mask = offset("?GlobalsForVMStructs._?PointerLoadBadMask");
  layout.shift = offset("?GlobalsForVMStructs._?PointerLoadShift");
  return layout;
}

std::optional<ZgcReferences> ZgcReferences::Open(ProcessMemory* memory, const ZgcLayout& layout) {
  ZgcReferences references(memory, layout);
  const uint64_t globals_avma = memory->Word(layout.globals_avma).value_or(0);
  const auto variable = [&](uint64_t offset) {
    return memory->Word(memory->Word(globals_avma + offset).value_or(0)).value_or(0);
  };
  const uint64_t bits = layout.offset_bits ? *layout.offset_bits : std::bit_width(variable(layout.offset_mask));
  if (bits < kMinOffsetBits || bits > kMaxOffsetBits) return std::nullopt;
  references.offset_mask_ = (uint64_t{1} << bits) - 1;
  if (!layout.offset_bits && variable(layout.offset_mask) != references.offset_mask_) return std::nullopt;
  if (layout.shift) {
    if (!layout.good_mask || !layout.bad_mask) return std::nullopt;
    // One of these bits is set, and the address stands right above it (zAddress.hpp, x86: "RRRRMMmmFFrr0000").
    const uint64_t good = variable(*layout.good_mask);
    if (good == 0 || variable(*layout.shift) != std::countr_zero(good) + 1u) return std::nullopt;
    references.remapped_mask_ = good | variable(*layout.bad_mask);
  }
  const uint64_t heap_avma = memory->Word(layout.heap_avma).value_or(0);
  references.pages_avma_ = memory->Word(heap_avma + layout.heap_pages).value_or(0);
  if (references.pages_avma_ == 0) return std::nullopt;
  return references;
}

uint64_t ZgcReferences::At(uint64_t reference) {
  uint64_t offset = reference;
  if (remapped_mask_ != 0) {
    const uint64_t remapped = reference & remapped_mask_;
    if (remapped == 0) return 0;
    offset >>= std::countr_zero(remapped) + 1;
  }
  offset &= offset_mask_;
  if (offset == 0) return 0;
  // What was moved leaves a page that is no longer one, or another one in its place.
  const uint64_t page = memory_->Word(pages_avma_ + 8 * (offset >> layout_.page_bits)).value_or(0);
  const bool is_there = page != 0 && (page & kRelocating) == 0 &&
                        (!layout_.page_top || offset < memory_->Word(page + *layout_.page_top).value_or(0));
  if (!is_there) {
    has_moved_ = true;
    return 0;
  }
  return Plain(offset);
}

}  // namespace stackd::hotspot

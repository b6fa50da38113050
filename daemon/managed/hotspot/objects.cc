#include "daemon/managed/hotspot/objects.h"

#include <map>

#include "daemon/base/text.h"
#include "daemon/managed/hotspot/compressed_ints.h"
#include "daemon/managed/hotspot/methods.h"

namespace stackd::hotspot {
namespace {

constexpr uint64_t kMaxFlags = 8192;
constexpr size_t kMaxFlagNameBytes = 128;
constexpr int kMaxClassDepth = 64;
constexpr uint32_t kMaxFields = 4096;
constexpr uint32_t kMaxShift = 32;
constexpr uint64_t kMaxFieldOffset = 1 << 20;

// A field in an Array<u2> (fieldInfo.hpp up to release 20), in words of 2 bytes. They are flags, name, signature, initial
// value, and the offset in two halves, shifted over two bits of tag.
constexpr uint32_t kTupleWords = 6, kTupleName = 1, kTupleLow = 4, kTupleHigh = 5, kTupleTagBits = 2;
// Elements of an Array of u1 or u2 begin after its length.
constexpr uint64_t kArrayData = 4;
// Parts of a field in the stream (fieldInfo.hpp from release 21 on) that are there if the flag is set.
constexpr uint32_t kHasInitialValue = 1 << 0, kHasGenericSignature = 1 << 2, kHasContentionGroup = 1 << 4;

// An array of bytes or characters begins with the object's header word and its class. Its length of 4 bytes follows, then
// its elements: from release 23 on (JDK-8139457) at once, before that at the next whole word.
constexpr uint64_t kWordBits = 64, kHeaderWord = 8, kWideClass = 8, kNarrowClass = 4, kLengthBytes = 4;

// The VM's command line switches that are bool, as they stand.
std::map<std::string, bool> ReadSwitches(ProcessMemory* memory, const Layout& layout) {
  std::map<std::string, bool> switches = {{"UseCompressedOops", false},
                                          {"UseCompressedClassPointers", false},
                                          {"UseCompactObjectHeaders", false},
                                          {"UseZGC", false},
                                          {"ZGenerational", false}};
  if (layout.flags_avma == kNone || layout.flag_count_avma == kNone || layout.flag_bytes == kNone) return switches;
  const uint64_t begin_avma = memory->Word(layout.flags_avma).value_or(0);
  const uint64_t count = memory->Word(layout.flag_count_avma).value_or(0);
  for (uint64_t i = 0; i < count && i < kMaxFlags; ++i) {
    const uint64_t flag_avma = begin_avma + i * layout.flag_bytes;
    const auto name_avma = memory->Word(flag_avma + layout.flag_name);
    if (!name_avma || *name_avma == 0) break;
    const auto found = switches.find(memory->Text(*name_avma, kMaxFlagNameBytes).value_or(""));
    if (found == switches.end()) continue;
    const auto value_avma = memory->Word(flag_avma + layout.flag_address);
    found->second = value_avma && memory->Value<uint8_t>(*value_avma).value_or(0) != 0;
  }
  return switches;
}

}  // namespace

Result<Objects> Objects::Open(ProcessMemory* memory, const Layout& layout) {
  const auto unknown = [](const char* what) {
    return Error(Code::kFailedPrecondition, std::string("this HotSpot does not say ") + what);
  };
  if (layout.flag_name == kNone || layout.flag_address == kNone) return unknown("how it was started");
  if (layout.klass_constants == kNone) return unknown("where objects have their fields");
  auto switches = ReadSwitches(memory, layout);
  Objects objects(memory, layout);
  if (switches["UseZGC"]) {
    const auto& zgc = layout.old_zgc && !switches["ZGenerational"] ? layout.old_zgc : layout.zgc;
    if (zgc) objects.zgc_ = ZgcReferences::Open(memory, *zgc);
    if (!objects.zgc_) return unknown("how to read references (-XX:+UseZGC)");
  }
  objects.compact_headers_ = switches["UseCompactObjectHeaders"];
  if (objects.compact_headers_ && layout.compact_klass_shift >= kWordBits) {  // kNone, or nonsense
    return unknown("where objects have their class (-XX:+UseCompactObjectHeaders)");
  }
  const auto read = [&](uint64_t base_avma, uint64_t shift_avma, uint64_t* base, uint32_t* shift) {
    if (base_avma == kNone || shift_avma == kNone) return false;
    *base = memory->Word(base_avma).value_or(0);
    *shift = memory->Value<uint32_t>(shift_avma).value_or(kMaxShift);
    return *shift < kMaxShift;
  };
  objects.narrow_references_ = switches["UseCompressedOops"];
  // Always so from release 15 on, unless it was switched off; later releases have no such switch.
  objects.narrow_classes_ = switches["UseCompressedClassPointers"] || objects.compact_headers_;
  if (objects.narrow_references_ && !read(layout.narrow_oop_base_avma, layout.narrow_oop_shift_avma,
                                          &objects.reference_base_, &objects.reference_shift_)) {
    return unknown("how narrow references are");
  }
  if (objects.narrow_classes_ &&
      !read(layout.narrow_klass_base_avma, layout.narrow_klass_shift_avma, &objects.class_base_, &objects.class_shift_)) {
    return unknown("how narrow classes are");
  }
  return objects;
}

uint64_t Objects::KlassOf(uint64_t object_avma) {
  if (object_avma == 0 || object_avma % 8 != 0) return 0;
  if (!narrow_classes_) return memory_->Word(object_avma + layout_.object_klass).value_or(0);
  const uint64_t narrow = compact_headers_ ? memory_->Word(object_avma).value_or(0) >> layout_.compact_klass_shift
                                           : memory_->Value<uint32_t>(object_avma + layout_.object_klass).value_or(0);
  return narrow == 0 ? 0 : class_base_ + (narrow << class_shift_);
}

std::optional<std::string> Objects::ClassOf(uint64_t object_avma) {
  const uint64_t klass_avma = KlassOf(object_avma);
  return klass_avma == 0 ? std::nullopt : ClassName(memory_, layout_, klass_avma);
}

std::optional<uint64_t> Objects::FieldOffsetInTuples(uint64_t klass_avma, uint64_t pool_avma, std::string_view field) {
  const auto array = memory_->Word(klass_avma + layout_.klass_fields);
  const auto count = memory_->Value<uint16_t>(klass_avma + layout_.klass_field_count);
  if (!array || !count) return std::nullopt;
  for (uint32_t i = 0; i < *count && i < kMaxFields; ++i) {
    const auto word = [&](uint32_t index) {
      return uint32_t{memory_->Value<uint16_t>(*array + kArrayData + 2ull * (i * kTupleWords + index)).value_or(0)};
    };
    if (PoolSymbol(memory_, layout_, pool_avma, word(kTupleName)) != field) continue;
    return (word(kTupleHigh) << 16 | word(kTupleLow)) >> kTupleTagBits;
  }
  return std::nullopt;
}

std::optional<uint64_t> Objects::FieldOffsetInStream(uint64_t klass_avma, uint64_t pool_avma, std::string_view field) {
  const auto array = memory_->Word(klass_avma + layout_.klass_field_stream);
  if (!array) return std::nullopt;
  CompressedInts stream(memory_, *array + kArrayData, layout_.release);
  const uint32_t count = stream.Unsigned();
  stream.Unsigned();  // fields that the VM added
  for (uint32_t i = 0; i < count && i < kMaxFields && stream.ok(); ++i) {
    const uint32_t name_index = stream.Unsigned();
    stream.Unsigned();  // signature
    const uint32_t offset = stream.Unsigned();
    stream.Unsigned();  // access
    const uint32_t flags = stream.Unsigned();
    for (uint32_t flag : {kHasInitialValue, kHasGenericSignature, kHasContentionGroup}) {
      if ((flags & flag) != 0) stream.Unsigned();
    }
    if (stream.ok() && PoolSymbol(memory_, layout_, pool_avma, name_index) == field) return offset;
  }
  return std::nullopt;
}

std::optional<uint64_t> Objects::FieldOffset(uint64_t klass_avma, std::string_view declared_by, std::string_view field) {
  const std::string key = std::string(declared_by) + "." + std::string(field);
  for (int depth = 0; depth < kMaxClassDepth && klass_avma != 0; ++depth) {
    if (ClassName(memory_, layout_, klass_avma) == declared_by) {
      const auto [known, is_new] = offsets_.try_emplace(key);
      if (is_new) {
        const auto pool = memory_->Word(klass_avma + layout_.klass_constants);
        if (pool && layout_.klass_field_stream != kNone) {
          known->second = FieldOffsetInStream(klass_avma, *pool, field);
        } else if (pool && layout_.klass_fields != kNone && layout_.klass_field_count != kNone) {
          known->second = FieldOffsetInTuples(klass_avma, *pool, field);
        }
        if (known->second && *known->second > kMaxFieldOffset) known->second.reset();
      }
      return known->second;
    }
    klass_avma = memory_->Word(klass_avma + layout_.klass_super).value_or(0);
  }
  return std::nullopt;
}

uint64_t Objects::Reference(uint64_t object_avma, std::string_view declared_by, std::string_view field) {
  const uint64_t klass_avma = KlassOf(object_avma);
  const auto offset = klass_avma == 0 ? std::nullopt : FieldOffset(klass_avma, declared_by, field);
  if (!offset) return 0;
  if (!narrow_references_) return At(memory_->Word(object_avma + *offset).value_or(0));
  const auto narrow = memory_->Value<uint32_t>(object_avma + *offset);
  return narrow && *narrow != 0 ? reference_base_ + (uint64_t{*narrow} << reference_shift_) : 0;
}

std::optional<uint64_t> Objects::Long(uint64_t object_avma, std::string_view declared_by, std::string_view field) {
  const uint64_t klass_avma = KlassOf(object_avma);
  const auto offset = klass_avma == 0 ? std::nullopt : FieldOffset(klass_avma, declared_by, field);
  return offset ? memory_->Word(object_avma + *offset) : std::nullopt;
}

// Latin-1 or UTF-16, by what its `coder` says, or, up to release 8, UTF-16 in a char[]; every character beyond Latin-1 is
// told as "?".
std::optional<std::string> Objects::Text(uint64_t string_avma, size_t max_characters) {
  const uint64_t array_avma = Reference(string_avma, "java.lang.String", "value");
  const auto coder_offset = FieldOffset(KlassOf(string_avma), "java.lang.String", "coder");
  const uint64_t class_bytes = compact_headers_ ? 0 : narrow_classes_ ? kNarrowClass : kWideClass;
  const uint64_t length_avma = array_avma + kHeaderWord + class_bytes;
  const uint64_t after_avma = length_avma + kLengthBytes;
  const uint64_t elements_avma = layout_.release >= 23 ? after_avma : (after_avma + 7) & ~uint64_t{7};
  const auto length = memory_->Value<uint32_t>(length_avma);
  const bool has_coder = layout_.release >= 9;
  // What has moved may have left anything in its place.
  if (ClassOf(string_avma) != "java.lang.String" || ClassOf(array_avma) != (has_coder ? "[B" : "[C")) return std::nullopt;
  if (array_avma == 0 || (has_coder && !coder_offset) || !length) return std::nullopt;
  const auto coder = has_coder ? memory_->Value<uint8_t>(string_avma + *coder_offset) : std::optional<uint8_t>(1);
  if (!coder || *coder > 1) return std::nullopt;
  const uint32_t character_bytes = *coder == 1 ? 2 : 1;
  const uint32_t characters = has_coder ? *length / character_bytes : *length;
  std::string text;
  for (uint32_t i = 0; i < characters && i < max_characters; ++i) {
    const uint64_t avma = elements_avma + uint64_t{i} * character_bytes;
    const auto low = memory_->Value<uint8_t>(avma);
    const auto high = character_bytes == 2 ? memory_->Value<uint8_t>(avma + 1) : std::optional<uint8_t>(0);
    if (!low || !high) return std::nullopt;
    if (*high != 0) {
      text += '?';
    } else if (*low < 0x80) {
      text += static_cast<char>(*low);
    } else {
      text += static_cast<char>(0xc0 | *low >> 6);
      text += static_cast<char>(0x80 | (*low & 0x3f));
    }
  }
  return ToValidUtf8(text);
}

}  // namespace stackd::hotspot

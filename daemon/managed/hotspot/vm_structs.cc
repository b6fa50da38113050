#include "daemon/managed/hotspot/vm_structs.h"

namespace stackd::hotspot {
namespace {

constexpr int kMaxEntries = 8192;  // JDK 17 has 1,300 fields
constexpr uint64_t kMaxStride = 256;
constexpr size_t kMaxNameBytes = 256;

// The value of an exported 64-bit variable.
std::optional<uint64_t> Variable(ProcessMemory* memory, const ImageSymbols& libjvm, const std::string& name) {
  const auto avma = libjvm.Find(name);
  return avma ? memory->Word(*avma) : std::nullopt;
}

// A table of entries of equal size, which ends with one that has no name.
class EntryTable {
 public:
  static std::optional<EntryTable> Open(ProcessMemory* memory, const ImageSymbols& libjvm, const std::string& array,
                                        const std::string& entry, const std::string& name_field) {
    EntryTable table(memory, libjvm, entry);
    const auto begin = Variable(memory, libjvm, array);
    const auto stride = table.FieldOffset("ArrayStride");
    const auto name = table.FieldOffset(name_field);
    if (!begin || !stride || !name || *stride == 0 || *stride > kMaxStride || *name >= *stride) return std::nullopt;
    table.entry_avma_ = *begin;
    table.stride_ = *stride;
    table.name_offset_ = *name;
    return table;
  }

  // Where a field is in an entry.
  std::optional<uint64_t> FieldOffset(const std::string& field) const { return Variable(memory_, libjvm_, entry_ + field); }

  bool Next() {
    if (begun_) entry_avma_ += stride_;
    begun_ = true;
    if (++count_ > kMaxEntries) return false;
    name_avma_ = memory_->Word(entry_avma_ + name_offset_).value_or(0);
    return name_avma_ != 0;
  }
  std::string Name() const { return TextAt(name_avma_); }
  std::string TextField(uint64_t offset) const { return TextAt(memory_->Word(entry_avma_ + offset).value_or(0)); }
  template <typename T>
  T Field(uint64_t offset) const {
    return memory_->Value<T>(entry_avma_ + offset).value_or(T{});
  }

 private:
  EntryTable(ProcessMemory* memory, const ImageSymbols& libjvm, std::string entry)
      : memory_(memory), libjvm_(libjvm), entry_(std::move(entry)) {}

  std::string TextAt(uint64_t avma) const {
    return avma == 0 ? std::string() : memory_->Text(avma, kMaxNameBytes).value_or("");
  }

  ProcessMemory* memory_;
  const ImageSymbols& libjvm_;
  std::string entry_;
  uint64_t entry_avma_ = 0, stride_ = 0, name_offset_ = 0, name_avma_ = 0;
  int count_ = 0;
  bool begun_ = false;
};

}  // namespace

bool VmStructs::ReadFields(ProcessMemory* memory, const ImageSymbols& libjvm) {
  auto table = EntryTable::Open(memory, libjvm, "gHotSpotVMStructs", "gHotSpotVMStructEntry", "TypeNameOffset");
  if (!table) return false;
  const auto field = table->FieldOffset("FieldNameOffset"), is_static = table->FieldOffset("IsStaticOffset"),
             offset = table->FieldOffset("OffsetOffset"), address = table->FieldOffset("AddressOffset");
  if (!field || !is_static || !offset || !address) return false;
  while (table->Next()) {
    std::string name = table->Name() + "." + table->TextField(*field);
    if (table->Field<int32_t>(*is_static) != 0) {
      addresses_.emplace(std::move(name), table->Field<uint64_t>(*address));
    } else {
      offsets_.emplace(std::move(name), table->Field<uint64_t>(*offset));
    }
  }
  return !offsets_.empty();
}

bool VmStructs::ReadTypes(ProcessMemory* memory, const ImageSymbols& libjvm) {
  auto table = EntryTable::Open(memory, libjvm, "gHotSpotVMTypes", "gHotSpotVMTypeEntry", "TypeNameOffset");
  const auto size = table ? table->FieldOffset("SizeOffset") : std::nullopt;
  if (!size) return false;
  while (table->Next()) type_bytes_.emplace(table->Name(), table->Field<uint64_t>(*size));
  return true;
}

template <typename T>
bool VmStructs::ReadConstants(ProcessMemory* memory, const ImageSymbols& libjvm, const std::string& kind) {
  auto table = EntryTable::Open(memory, libjvm, kind + "Constants", kind + "ConstantEntry", "NameOffset");
  const auto value = table ? table->FieldOffset("ValueOffset") : std::nullopt;
  if (!value) return false;
  while (table->Next()) constants_.emplace(table->Name(), static_cast<uint64_t>(int64_t{table->Field<T>(*value)}));
  return true;
}

std::optional<VmStructs> VmStructs::Read(ProcessMemory* memory, const ImageSymbols& libjvm) {
  VmStructs structs;
  if (!structs.ReadFields(memory, libjvm) || !structs.ReadTypes(memory, libjvm) ||
      !structs.ReadConstants<int32_t>(memory, libjvm, "gHotSpotVMInt") ||
      !structs.ReadConstants<int64_t>(memory, libjvm, "gHotSpotVMLong")) {
    return std::nullopt;
  }
  return structs;
}

}  // namespace stackd::hotspot

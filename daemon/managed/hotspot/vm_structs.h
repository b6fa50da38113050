// What HotSpot says of its own layout, for debuggers: tables of fields, types and constants that libjvm exports
// (vmStructs.cpp in its sources).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/managed/hotspot/image_symbols.h"
#include "daemon/managed/hotspot/process_memory.h"

namespace stackd::hotspot {

class VmStructs {
 public:
  // nullopt if libjvm exports no tables that make sense.
  static std::optional<VmStructs> Read(ProcessMemory* memory, const ImageSymbols& libjvm);

  // Offset of a member, "Type.field".
  std::optional<uint64_t> Offset(std::string_view field) const { return Find(offsets_, field); }
  // Address of a static field.
  std::optional<uint64_t> Address(std::string_view field) const { return Find(addresses_, field); }
  std::optional<uint64_t> TypeBytes(std::string_view type) const { return Find(type_bytes_, type); }
  std::optional<uint64_t> Constant(std::string_view name) const { return Find(constants_, name); }

 private:
  using Table = std::map<std::string, uint64_t, std::less<>>;

  static std::optional<uint64_t> Find(const Table& table, std::string_view name) {
    auto found = table.find(name);
    return found == table.end() ? std::nullopt : std::optional(found->second);
  }
  bool ReadFields(ProcessMemory* memory, const ImageSymbols& libjvm);
  bool ReadTypes(ProcessMemory* memory, const ImageSymbols& libjvm);
  // `kind`: the begin of the names of a table.
  template <typename T>
  bool ReadConstants(ProcessMemory* memory, const ImageSymbols& libjvm, const std::string& kind);

  Table offsets_, addresses_, type_bytes_, constants_;
};

}  // namespace stackd::hotspot

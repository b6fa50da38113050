// Symbols that a mapped ELF image exports, found in the process's memory. Uses the table of the process's dynamic linker:
// the GNU hash table, or the older one, which is all that builds of release 11 have.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "daemon/managed/hotspot/process_memory.h"

namespace stackd::hotspot {

class ImageSymbols {
 public:
  // `image_avma`: where its ELF header is mapped. nullopt if it has no table.
  static std::optional<ImageSymbols> Open(ProcessMemory* memory, uint64_t image_avma);

  // Where the symbol is in the process.
  std::optional<uint64_t> Find(std::string_view name) const;

 private:
  bool OpenGnuTable(uint64_t table_avma);
  bool OpenOldTable(uint64_t table_avma);
  // Address of the symbol, if it has that name.
  std::optional<uint64_t> AddressOf(uint64_t index, std::string_view name) const;
  std::optional<uint64_t> FindByGnuTable(std::string_view name) const;
  std::optional<uint64_t> FindByOldTable(std::string_view name) const;

  ProcessMemory* memory_ = nullptr;
  uint64_t bias_ = 0;
  uint64_t symbols_avma_ = 0;
  uint64_t strings_avma_ = 0;
  uint64_t buckets_avma_ = 0;
  uint64_t chain_avma_ = 0;  // of symbol 0, had it a chain
  bool is_gnu_table_ = false;
  uint32_t bucket_count_ = 0;
};

}  // namespace stackd::hotspot

// What is mapped where in a process, at one moment.
//
// An avma is an address in the process; an svma the address of the same byte as the ELF file states it;
// avma = svma + bias. The bias belongs to the mapping, not to the file: node maps its own text twice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/modules/module.h"

namespace stackd {

struct Mapping {
  uint64_t start_avma;
  uint64_t end_avma;
  uint64_t file_offset;
  bool readable;
  bool writable;
  bool executable;
  // As in /proc/PID/maps: a path, possibly with " (deleted)", "[vdso]", "[stack]", or empty.
  std::string path;
  uint64_t device = 0;
  uint64_t inode = 0;
  // The ELF file that is mapped; nullptr for anonymous memory (JIT code) or where the file could not be had.
  std::shared_ptr<const Module> module;
  // Valid if module: avma - svma.
  uint64_t bias = 0;
  // MAP_SHARED: writes go to what is mapped, which other processes may have mapped too.
  bool shared = false;
};

// Immutable after construction, so one map serves all threads of a dump, and dumps until the process maps something new.
class AddressMap {
 public:
  // Mappings sorted by address, not overlapping.
  explicit AddressMap(std::vector<Mapping> mappings) : id_(NextId()), mappings_(std::move(mappings)) {}

  // The mapping that holds `avma`, or nullptr.
  const Mapping* Find(uint64_t avma) const;
  const std::vector<Mapping>& mappings() const { return mappings_; }
  // Key for caches of addresses: no other map that this process ever makes has it, except copies of this one.
  uint64_t id() const { return id_; }

 private:
  static uint64_t NextId();

  uint64_t id_;
  std::vector<Mapping> mappings_;
};

// The text of /proc/PID/maps; lines that make no sense, or overlap the one before, are skipped. Modules are not filled in.
std::vector<Mapping> ParseMaps(std::string_view text);

// The bias (avma - svma) of `mapping`, which maps the file of `module` or is what its image was copied from. nullopt if no
// PT_LOAD holds what is mapped. Wraps around: an executable linked above where it is mapped has a "negative" bias.
// `mapping.module` need not be set.
std::optional<uint64_t> MappingBias(const Mapping& mapping, const Module& module);

}  // namespace stackd

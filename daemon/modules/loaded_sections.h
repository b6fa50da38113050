// The sections of an ELF file by name, those that Module does not keep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/modules/module.h"

namespace stackd {

struct NamedSection {
  std::string name;
  uint64_t svma;
  uint64_t file_offset;
  uint64_t size_bytes;
};

// Sections that are loaded and have bytes in the file; empty where there are none or they make no sense.
std::vector<NamedSection> LoadedSections(const Module& module);

}  // namespace stackd

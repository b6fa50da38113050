// Undoes compression that libdw cannot undo, or would undo for more sections than are needed here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "daemon/base/result.h"
#include "daemon/symbolize/elf_file.h"

namespace stackd {

// The ELF file inside a .gnu_debugdata section (xz). Fails with kResourceExhausted if it is larger than `limit_bytes`,
// kDataLoss if it cannot be read.
Result<std::unique_ptr<ElfFile>> OpenXzImage(std::span<const uint8_t> xz, uint64_t limit_bytes);

// True if a DWARF section that names or lines need is compressed in any of the three ways: zlib, zstd, and .zdebug.
bool HasCompressedDwarf(const ElfFile& file);

// An image in memory that holds only the DWARF sections needed here, plain. Fails with kResourceExhausted if they are
// larger than `limit_bytes`, found before anything is allocated; kDataLoss if they are damaged.
Result<std::unique_ptr<ElfFile>> InflateDwarf(const ElfFile& file, uint64_t limit_bytes);

// An image with one empty DWARF section. It stands for a dwz file that was not found: libdw would else open a path of the
// file's own choice.
std::unique_ptr<ElfFile> EmptyDwarf();

}  // namespace stackd

// For tests: ELF files and call frame information written by hand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/modules/module.h"

namespace stackd {

// Builds a section .eh_frame for kSyntheticCfiSvma, as an assembler does.
class CfiBuilder {
 public:
  using Bytes = std::vector<uint8_t>;

  // Adds a CIE and returns its offset. Code alignment 1, data alignment -8, return address in 16, pointers as 4 bytes
  // relative to their place. At a function's begin the CFA is rsp+8 and the return address just below it.
  uint32_t Cie(const std::string& augmentation = "zR", const Bytes& augmentation_data = {0x1b});

  uint32_t Fde(uint32_t cie_offset, uint64_t begin_svma, uint32_t size_bytes, const Bytes& instructions);

  const Bytes& bytes() const { return bytes_; }

 private:
  uint32_t Add(const Bytes& body);

  Bytes bytes_;
};

inline constexpr uint64_t kSyntheticCfiSvma = 0x10000;
// The one segment with code; its file offset is its svma.
inline constexpr Segment kSyntheticCode[] = {
    {.file_offset = 0x1000, .file_bytes = 0x4000, .svma = 0x1000, .memory_bytes = 0x4000, .executable = true}};

struct SyntheticSection {
  std::string name;
  uint32_t flags = 0;
  std::vector<uint8_t> content;
};

// An ELF file with that segment, which holds `code` and zeros, and these sections; the first that is loaded is at
// kSyntheticCfiSvma.
std::shared_ptr<const Module> SyntheticModule(const std::vector<SyntheticSection>& sections,
                                              const std::vector<uint8_t>& code = {});
// With one section.
std::shared_ptr<const Module> SyntheticModule(const std::string& section_name, uint32_t section_flags,
                                              const std::vector<uint8_t>& section_content,
                                              const std::vector<uint8_t>& code = {});

}  // namespace stackd

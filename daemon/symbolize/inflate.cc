#include "daemon/symbolize/inflate.h"

#include <endian.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stackd {
namespace {

constexpr uint32_t kCompressZstd = 2;  // ELFCOMPRESS_ZSTD, newer than Debian 12's elf.h

constexpr std::array<std::string_view, 10> kNeeded = {
    "info", "types", "abbrev", "line", "line_str", "str", "str_offsets", "addr", "ranges", "rnglists",
};

enum class Packing { kPlain, kZlib, kZstd };

struct PackedSection {
  std::string name;  // ".debug_…" also for .zdebug_…
  Packing packing = Packing::kPlain;
  std::span<const uint8_t> bytes;
  uint64_t plain_bytes = 0;
};

bool IsNeeded(std::string_view suffix) { return std::find(kNeeded.begin(), kNeeded.end(), suffix) != kNeeded.end(); }

// nullopt: not a section that is needed. `damaged` is set if it is one, but makes no sense.
std::optional<PackedSection> Classify(const ElfSection& section, bool* damaged) {
  PackedSection packed;
  std::string_view name = section.name;
  bool old_style = name.starts_with(".zdebug_");
  if (name == ".gnu_debugaltlink") {
    packed.name = name;
  } else if (old_style && IsNeeded(name.substr(8))) {
    packed.name = ".debug_" + std::string(name.substr(8));
  } else if (name.starts_with(".debug_") && IsNeeded(name.substr(7))) {
    packed.name = name;
  } else {
    return std::nullopt;
  }
  packed.bytes = ElfFile::RawBytes(section);
  packed.plain_bytes = packed.bytes.size();
  if (old_style) {
    constexpr size_t kHeaderBytes = 12;  // "ZLIB", then the size, big-endian
    if (packed.bytes.size() < kHeaderBytes || memcmp(packed.bytes.data(), "ZLIB", 4) != 0) {
      *damaged = true;
      return std::nullopt;
    }
    uint64_t size;
    memcpy(&size, packed.bytes.data() + 4, sizeof(size));
    packed.plain_bytes = be64toh(size);
    packed.packing = Packing::kZlib;
    packed.bytes = packed.bytes.subspan(kHeaderBytes);
  } else if ((section.header.sh_flags & SHF_COMPRESSED) != 0) {
    Elf64_Chdr header;
    if (packed.bytes.size() < sizeof(header)) {
      *damaged = true;
      return std::nullopt;
    }
    memcpy(&header, packed.bytes.data(), sizeof(header));
    packed.plain_bytes = header.ch_size;
    packed.packing = header.ch_type == kCompressZstd ? Packing::kZstd : Packing::kZlib;
    packed.bytes = packed.bytes.subspan(sizeof(header));
  }
  return packed;
}

bool Unpack(const PackedSection& section, uint8_t* out) {
  switch (section.packing) {
    case Packing::kPlain:
      if (!section.bytes.empty()) memcpy(out, section.bytes.data(), section.bytes.size());
      return true;
    case Packing::kZlib: {
      uLongf out_bytes = section.plain_bytes;
      return uncompress(out, &out_bytes, section.bytes.data(), section.bytes.size()) == Z_OK &&
             out_bytes == section.plain_bytes;
    }
    case Packing::kZstd:
      return ZSTD_decompress(out, section.plain_bytes, section.bytes.data(), section.bytes.size()) == section.plain_bytes;
  }
  return false;
}

uint64_t AlignUp(uint64_t value) { return (value + 7) & ~uint64_t{7}; }

// Layout: ELF header, sections, section names, section headers.
Result<std::unique_ptr<ElfFile>> BuildImage(const std::vector<PackedSection>& sections, uint64_t limit_bytes) {
  std::string names(1, '\0');
  std::vector<Elf64_Shdr> headers(1);
  uint64_t offset = sizeof(Elf64_Ehdr);
  for (const PackedSection& section : sections) {
    Elf64_Shdr header{};
    header.sh_name = names.size();
    header.sh_type = SHT_PROGBITS;
    header.sh_offset = offset;
    header.sh_size = section.plain_bytes;
    header.sh_addralign = 1;
    headers.push_back(header);
    names += section.name + '\0';
    // The sizes are claims of the file: checked before they are added or allocated.
    if (offset > limit_bytes || section.plain_bytes > limit_bytes - offset) {
      return Error(Code::kResourceExhausted, "its debug data is larger than the limit");
    }
    offset = AlignUp(offset + section.plain_bytes);
  }
  Elf64_Shdr name_header{};
  name_header.sh_name = names.size();
  names += ".shstrtab";
  names += '\0';
  name_header.sh_type = SHT_STRTAB;
  name_header.sh_offset = offset;
  name_header.sh_size = names.size();
  name_header.sh_addralign = 1;
  headers.push_back(name_header);
  uint64_t headers_offset = AlignUp(offset + names.size());
  uint64_t total_bytes = headers_offset + headers.size() * sizeof(Elf64_Shdr);

  auto image = std::make_unique_for_overwrite<uint8_t[]>(total_bytes);
  for (size_t i = 0; i < sections.size(); ++i) {
    if (!Unpack(sections[i], image.get() + headers[i + 1].sh_offset)) {
      return Error(Code::kDataLoss, "its section " + sections[i].name + " cannot be decompressed");
    }
  }
  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shoff = headers_offset;
  header.e_shnum = headers.size();
  header.e_shstrndx = headers.size() - 1;
  memcpy(image.get(), &header, sizeof(header));
  memcpy(image.get() + offset, names.data(), names.size());
  memcpy(image.get() + headers_offset, headers.data(), headers.size() * sizeof(Elf64_Shdr));
  auto file = ElfFile::OpenImage(std::move(image), total_bytes);
  if (file == nullptr) return Error(Code::kInternal, "its debug data cannot be opened");
  return file;
}

}  // namespace

Result<std::unique_ptr<ElfFile>> OpenXzImage(std::span<const uint8_t> xz, uint64_t limit_bytes) {
  // Grows by doubling, because the size is only known at the end of the stream.
  for (uint64_t capacity = std::min<uint64_t>(limit_bytes, std::max<uint64_t>(65'536, 8 * xz.size()));; capacity *= 2) {
    capacity = std::min(capacity, limit_bytes);
    auto image = std::make_unique_for_overwrite<uint8_t[]>(capacity);
    uint64_t memory_limit = limit_bytes;
    size_t in_bytes = 0, out_bytes = 0;
    lzma_ret ret = lzma_stream_buffer_decode(&memory_limit, 0, nullptr, xz.data(), &in_bytes, xz.size(), image.get(),
                                             &out_bytes, capacity);
    if (ret == LZMA_OK) {
      auto file = ElfFile::OpenImage(std::move(image), out_bytes);
      if (file == nullptr) return Error(Code::kDataLoss, "its .gnu_debugdata holds no ELF file");
      return file;
    }
    if (ret == LZMA_MEMLIMIT_ERROR || (ret == LZMA_BUF_ERROR && capacity == limit_bytes)) {
      return Error(Code::kResourceExhausted, "its .gnu_debugdata is larger than the limit");
    }
    if (ret != LZMA_BUF_ERROR) return Error(Code::kDataLoss, "its .gnu_debugdata cannot be decompressed");
  }
}

bool HasCompressedDwarf(const ElfFile& file) {
  bool compressed = false;
  file.ForEachSection([&](const ElfSection& section) {
    compressed = section.name.starts_with(".zdebug_") ||
                 (section.name.starts_with(".debug_") && (section.header.sh_flags & SHF_COMPRESSED) != 0);
    return !compressed;
  });
  return compressed;
}

Result<std::unique_ptr<ElfFile>> InflateDwarf(const ElfFile& file, uint64_t limit_bytes) {
  std::vector<PackedSection> sections;
  bool damaged = false;
  file.ForEachSection([&](const ElfSection& section) {
    std::optional<PackedSection> packed = Classify(section, &damaged);
    if (packed) sections.push_back(*std::move(packed));
    return !damaged && sections.size() < 64;
  });
  if (damaged) return Error(Code::kDataLoss, "its compressed debug data is damaged");
  return BuildImage(sections, limit_bytes);
}

std::unique_ptr<ElfFile> EmptyDwarf() {
  PackedSection section;
  section.name = ".debug_str";
  static constexpr uint8_t kEmptyString[1] = {0};
  section.bytes = kEmptyString;
  section.plain_bytes = sizeof(kEmptyString);
  auto image = BuildImage({section}, 1 << 20);
  return image ? *std::move(image) : nullptr;
}

}  // namespace stackd

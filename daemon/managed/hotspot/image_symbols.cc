#include "daemon/managed/hotspot/image_symbols.h"

#include <elf.h>

namespace stackd::hotspot {
namespace {

constexpr int kMaxHeaders = 64;
constexpr int kMaxDynamicEntries = 256;
// Symbols whose names have equal hashes, modulo the number of buckets.
constexpr uint32_t kMaxChain = 4096;
constexpr size_t kMaxNameBytes = 256;

uint32_t GnuHash(std::string_view name) {
  uint32_t hash = 5381;
  for (unsigned char c : name) hash = hash * 33 + c;
  return hash;
}

uint32_t OldHash(std::string_view name) {
  uint32_t hash = 0;
  for (unsigned char c : name) {
    hash = (hash << 4) + c;
    hash = (hash ^ (hash >> 28 << 4)) & 0x0fffffff;
  }
  return hash;
}

}  // namespace

std::optional<ImageSymbols> ImageSymbols::Open(ProcessMemory* memory, uint64_t image_avma) {
  const auto header = memory->Value<Elf64_Ehdr>(image_avma);
  if (!header || std::string_view(reinterpret_cast<const char*>(header->e_ident), SELFMAG) != ELFMAG) return std::nullopt;
  ImageSymbols image;
  image.memory_ = memory;
  std::optional<uint64_t> bias, dynamic_svma;
  for (int i = 0; i < header->e_phnum && i < kMaxHeaders; ++i) {
    const auto segment = memory->Value<Elf64_Phdr>(image_avma + header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) return std::nullopt;
    if (segment->p_type == PT_LOAD && segment->p_offset == 0 && !bias) bias = image_avma - segment->p_vaddr;
    if (segment->p_type == PT_DYNAMIC) dynamic_svma = segment->p_vaddr;
  }
  if (!bias || !dynamic_svma) return std::nullopt;
  image.bias_ = *bias;
  uint64_t gnu_table_avma = 0, old_table_avma = 0;
  for (int i = 0; i < kMaxDynamicEntries; ++i) {
    const auto entry = memory->Value<Elf64_Dyn>(*bias + *dynamic_svma + i * sizeof(Elf64_Dyn));
    if (!entry || entry->d_tag == DT_NULL) break;
    // glibc's linker writes addresses here, musl's leaves what the file has.
    const uint64_t value = entry->d_un.d_ptr >= *bias ? entry->d_un.d_ptr : entry->d_un.d_ptr + *bias;
    if (entry->d_tag == DT_SYMTAB) image.symbols_avma_ = value;
    if (entry->d_tag == DT_STRTAB) image.strings_avma_ = value;
    if (entry->d_tag == DT_GNU_HASH) gnu_table_avma = value;
    if (entry->d_tag == DT_HASH) old_table_avma = value;
  }
  if (image.symbols_avma_ == 0 || image.strings_avma_ == 0) return std::nullopt;
  const bool opened = (gnu_table_avma != 0 && image.OpenGnuTable(gnu_table_avma)) ||
                      (old_table_avma != 0 && image.OpenOldTable(old_table_avma));
  return opened ? std::optional(image) : std::nullopt;
}

bool ImageSymbols::OpenGnuTable(uint64_t table_avma) {
  const auto counts = memory_->Value<std::array<uint32_t, 4>>(table_avma);
  if (!counts || (*counts)[0] == 0) return false;
  const auto [bucket_count, first_symbol, bloom_words, bloom_shift] = *counts;
  bucket_count_ = bucket_count;
  buckets_avma_ = table_avma + sizeof(*counts) + 8ull * bloom_words;
  chain_avma_ = buckets_avma_ + 4ull * bucket_count - 4ull * first_symbol;
  is_gnu_table_ = true;
  return true;
}

bool ImageSymbols::OpenOldTable(uint64_t table_avma) {
  const auto counts = memory_->Value<std::array<uint32_t, 2>>(table_avma);
  if (!counts || (*counts)[0] == 0) return false;
  bucket_count_ = (*counts)[0];
  buckets_avma_ = table_avma + sizeof(*counts);
  chain_avma_ = buckets_avma_ + 4ull * bucket_count_;
  return true;
}

std::optional<uint64_t> ImageSymbols::AddressOf(uint64_t index, std::string_view name) const {
  const auto symbol = memory_->Value<Elf64_Sym>(symbols_avma_ + index * sizeof(Elf64_Sym));
  if (!symbol || symbol->st_shndx == SHN_UNDEF) return std::nullopt;
  if (memory_->Text(strings_avma_ + symbol->st_name, kMaxNameBytes) != name) return std::nullopt;
  return bias_ + symbol->st_value;
}

std::optional<uint64_t> ImageSymbols::Find(std::string_view name) const {
  return is_gnu_table_ ? FindByGnuTable(name) : FindByOldTable(name);
}

std::optional<uint64_t> ImageSymbols::FindByGnuTable(std::string_view name) const {
  const uint32_t hash = GnuHash(name);
  const auto first = memory_->Value<uint32_t>(buckets_avma_ + 4ull * (hash % bucket_count_));
  if (!first || *first == 0) return std::nullopt;
  for (uint64_t index = *first; index < uint64_t{*first} + kMaxChain; ++index) {
    const auto chained = memory_->Value<uint32_t>(chain_avma_ + 4 * index);
    if (!chained) return std::nullopt;
    if ((*chained | 1) == (hash | 1)) {
      if (const auto address = AddressOf(index, name)) return address;
    }
    if ((*chained & 1) != 0) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<uint64_t> ImageSymbols::FindByOldTable(std::string_view name) const {
  auto index = memory_->Value<uint32_t>(buckets_avma_ + 4ull * (OldHash(name) % bucket_count_));
  for (uint32_t i = 0; index && *index != 0 && i < kMaxChain; ++i) {
    if (const auto address = AddressOf(*index, name)) return address;
    index = memory_->Value<uint32_t>(chain_avma_ + 4ull * *index);
  }
  return std::nullopt;
}

}  // namespace stackd::hotspot

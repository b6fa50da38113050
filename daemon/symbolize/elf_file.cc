#include "daemon/symbolize/elf_file.h"

#include <gelf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace stackd {
namespace {

constexpr size_t kMaxBuildIdBytes = 64;

// The build-id among the notes of one section or segment.
std::string FindBuildId(Elf_Data* notes) {
  if (notes == nullptr) return {};
  size_t offset = 0;
  GElf_Nhdr note;
  size_t name_offset, desc_offset;
  while ((offset = gelf_getnote(notes, offset, &note, &name_offset, &desc_offset)) > 0) {
    const char* bytes = static_cast<const char*>(notes->d_buf);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof("GNU") &&
        memcmp(bytes + name_offset, "GNU", sizeof("GNU")) == 0 && note.n_descsz <= kMaxBuildIdBytes) {
      return std::string(bytes + desc_offset, note.n_descsz);
    }
  }
  return {};
}

}  // namespace

std::unique_ptr<ElfFile> ElfFile::OpenFd(Fd fd) {
  struct stat status;
  // Not fstat(), which libc makes out of newfstatat: that tells of any path, and the worker may not.
  if (!fd.valid() || syscall(SYS_fstat, fd.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0)
    return nullptr;
  // Mapped here and not by libelf, which would not say where, and would read the file into memory if that failed.
  size_t size_bytes = status.st_size;
  void* start = mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (start == MAP_FAILED) return nullptr;
  elf_version(EV_CURRENT);
  std::unique_ptr<ElfFile> file(new ElfFile);
  file->mapping_ = {static_cast<uint8_t*>(start), size_bytes};
  file->elf_ = elf_memory(static_cast<char*>(start), size_bytes);
  return Finish(std::move(file));
}

std::unique_ptr<ElfFile> ElfFile::OpenImage(std::unique_ptr<uint8_t[]> image, size_t size_bytes) {
  elf_version(EV_CURRENT);
  std::unique_ptr<ElfFile> file(new ElfFile);
  file->image_ = std::move(image);
  file->elf_ = elf_memory(reinterpret_cast<char*>(file->image_.get()), size_bytes);
  return Finish(std::move(file));
}

std::unique_ptr<ElfFile> ElfFile::Finish(std::unique_ptr<ElfFile> file) {
  Elf* elf = file->elf_;
  if (elf == nullptr || elf_kind(elf) != ELF_K_ELF) return nullptr;
  const Elf64_Ehdr* header = elf64_getehdr(elf);
  if (header == nullptr || header->e_machine != EM_X86_64 || header->e_ident[EI_DATA] != ELFDATA2LSB) return nullptr;
  file->header_ = *header;
  if (elf_getshdrstrndx(elf, &file->name_table_index_) != 0) file->name_table_index_ = 0;
  file->build_id_ = file->ReadBuildId();
  file->first_code_svma_ = file->FindFirstCode();
  return file;
}

ElfFile::~ElfFile() {
  elf_end(elf_);
  if (!mapping_.empty()) munmap(mapping_.data(), mapping_.size());
}

void ElfFile::ReleasePages() const {
  if (!mapping_.empty()) madvise(mapping_.data(), mapping_.size(), MADV_DONTNEED);
}

std::optional<ElfSection> ElfFile::Describe(Elf_Scn* handle) const {
  const Elf64_Shdr* header = elf64_getshdr(handle);
  if (header == nullptr) return std::nullopt;
  const char* name = elf_strptr(elf_, name_table_index_, header->sh_name);
  return ElfSection{handle, static_cast<uint32_t>(elf_ndxscn(handle)), *header, name != nullptr ? name : ""};
}

std::optional<ElfSection> ElfFile::FindSection(std::string_view name) const {
  std::optional<ElfSection> found;
  ForEachSection([&](const ElfSection& section) {
    if (section.name != name) return true;
    found = section;
    return false;
  });
  return found;
}

std::span<const uint8_t> ElfFile::RawBytes(const ElfSection& section) {
  if (section.header.sh_type == SHT_NOBITS) return {};
  Elf_Data* data = elf_rawdata(section.handle, nullptr);
  if (data == nullptr || data->d_buf == nullptr) return {};
  return {static_cast<const uint8_t*>(data->d_buf), data->d_size};
}

bool ElfFile::has_debug_info() const {
  bool found = false;
  ForEachSection([&](const ElfSection& section) {
    found = section.header.sh_type != SHT_NOBITS && (section.name == ".debug_info" || section.name == ".zdebug_info");
    return !found;
  });
  return found;
}

std::string ElfFile::ReadBuildId() const {
  std::string build_id;
  ForEachSection([&](const ElfSection& section) {
    if (section.header.sh_type == SHT_NOTE) build_id = FindBuildId(elf_getdata(section.handle, nullptr));
    return build_id.empty();
  });
  if (!build_id.empty()) return build_id;
  size_t count = 0;
  const Elf64_Phdr* segments = elf_getphdrnum(elf_, &count) == 0 ? elf64_getphdr(elf_) : nullptr;
  for (size_t i = 0; segments != nullptr && i < count && build_id.empty(); ++i) {
    if (segments[i].p_type != PT_NOTE) continue;
    Elf_Type type = segments[i].p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR;
    build_id = FindBuildId(elf_getdata_rawchunk(elf_, segments[i].p_offset, segments[i].p_filesz, type));
  }
  return build_id;
}

uint64_t ElfFile::FindFirstCode() const {
  uint64_t first_svma = UINT64_MAX;
  ForEachSection([&](const ElfSection& section) {
    constexpr uint64_t kCode = SHF_ALLOC | SHF_EXECINSTR;
    if ((section.header.sh_flags & kCode) == kCode && section.header.sh_size > 0) {
      first_svma = std::min(first_svma, section.header.sh_addr);
    }
    return true;
  });
  if (first_svma != UINT64_MAX) return first_svma;
  size_t count = 0;
  const Elf64_Phdr* segments = elf_getphdrnum(elf_, &count) == 0 ? elf64_getphdr(elf_) : nullptr;
  for (size_t i = 0; segments != nullptr && i < count; ++i) {
    if (segments[i].p_type == PT_LOAD && (segments[i].p_flags & PF_X) != 0) {
      first_svma = std::min(first_svma, segments[i].p_vaddr);
    }
  }
  return first_svma == UINT64_MAX ? 0 : first_svma;
}

}  // namespace stackd

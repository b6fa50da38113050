// Core files for tests, byte by byte.
#pragma once

#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"

namespace stackd {

template <typename T>
std::string BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

inline Fd FileOf(const std::string& bytes) {
  Fd file(memfd_create("made-up", MFD_CLOEXEC));
  if (write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) abort();
  return file;
}

class MadeUpCore {
 public:
  // A segment of `size_bytes`, of which the core has the first `bytes`.
  void AddSegment(uint64_t avma, uint64_t size_bytes, uint32_t flags, std::string bytes = {}) {
    segments_.push_back({avma, size_bytes, flags, std::move(bytes)});
  }

  void AddNote(uint32_t type, const std::string& says, const std::string& name = "CORE") {
    const Elf64_Nhdr header{static_cast<uint32_t>(name.size() + 1), static_cast<uint32_t>(says.size()), type};
    notes_ += BytesOf(header) + Padded(name + '\0') + Padded(says);
  }

  void AddThread(int32_t tid, uint64_t rip = 0x1000, uint64_t rsp = 0x2000) {
    elf_prstatus status{};
    user_regs_struct registers{};
    registers.rip = rip;
    registers.rsp = rsp;
    registers.orig_rax = ~0ull;
    status.pr_pid = tid;
    memcpy(&status.pr_reg, &registers, sizeof(registers));
    AddNote(NT_PRSTATUS, BytesOf(status));
  }

  struct MappedFile {
    uint64_t start_avma, end_avma, page;
    std::string path;
  };
  void AddFiles(const std::vector<MappedFile>& files) {
    std::string says = BytesOf(uint64_t{files.size()}) + BytesOf(uint64_t{4096}), paths;
    for (const MappedFile& file : files) {
      says += BytesOf(file.start_avma) + BytesOf(file.end_avma) + BytesOf(file.page);
      paths += file.path + '\0';
    }
    AddNote(NT_FILE, says + paths);
  }

  std::string Bytes() const {
    Elf64_Ehdr header{};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_CORE;
    header.e_machine = EM_X86_64;
    header.e_phoff = sizeof(header);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = static_cast<uint16_t>(segments_.size() + 1);
    uint64_t offset = sizeof(header) + header.e_phnum * sizeof(Elf64_Phdr);
    std::string headers = BytesOf(Elf64_Phdr{PT_NOTE, 0, offset, 0, 0, notes_.size(), 0, 4});
    std::string contents = notes_;
    offset += notes_.size();
    for (const Segment& segment : segments_) {
      const uint64_t file_bytes = segment.bytes.size();
      headers += BytesOf(Elf64_Phdr{PT_LOAD, segment.flags, offset, segment.avma, 0, file_bytes, segment.size_bytes, 4096});
      contents += segment.bytes;
      offset += file_bytes;
    }
    return BytesOf(header) + headers + contents;
  }

 private:
  struct Segment {
    uint64_t avma, size_bytes;
    uint32_t flags;
    std::string bytes;
  };

  static std::string Padded(std::string bytes) {
    bytes.resize((bytes.size() + 3) & ~size_t{3});
    return bytes;
  }

  std::string notes_;
  std::vector<Segment> segments_;
};

}  // namespace stackd

// An ELF file that a watched process has mapped, as the daemon holds it: by an open fd, never by path.
//
// The file came from a hostile process, so nothing in it is trusted. It is read by pread, never mapped: if its owner cuts
// it short, a process that has it mapped gets SIGBUS.
#pragma once

#include <sys/stat.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace stackd {

// What the kernel says the file is. Two modules with equal identity have equal content; a process cannot forge it, unlike a
// path or a build-id. Caches of what was derived from a file are keyed by it.
struct FileIdentity {
  uint64_t device;
  uint64_t inode;
  uint64_t size_bytes;
  int64_t mtime_ns;
  int64_t ctime_ns;
  auto operator<=>(const FileIdentity&) const = default;
};

// A loadable segment (PT_LOAD).
struct Segment {
  uint64_t file_offset;
  uint64_t file_bytes;
  uint64_t svma;  // p_vaddr
  uint64_t memory_bytes;
  bool executable;
};

// A part of the file, found by name; `svma` is 0 where it is not loaded.
struct Section {
  uint64_t svma;
  uint64_t file_offset;
  uint64_t size_bytes;
  bool compressed;  // SHF_COMPRESSED: begins with an Elf64_Chdr
};

// Immutable after Open; shared by threads.
class Module {
 public:
  // Takes an fd of an ELF file (or of a memfd with an image copied from memory) and reads its headers. `path` is as the
  // process named it, for people. Fails with kInvalidArgument, naming what is wrong, for anything but a 64-bit
  // little-endian x86-64 executable or shared object.
  static Result<std::shared_ptr<const Module>> Open(Fd fd, std::string path);

  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  // Raw bytes; empty if the file has none.
  const std::string& build_id() const { return build_id_; }
  // In the file's order; none reaches beyond the end of the address space.
  const std::vector<Segment>& segments() const { return segments_; }
  // The lowest svma of all segments; 0 if there are none.
  uint64_t lowest_svma() const { return lowest_svma_; }
  int fd() const { return fd_.get(); }
  // True for an image copied from memory, without section headers and laid out by svma: position in the fd == svma - lowest
  // svma, by whole pages. Its program headers still give file offsets. False for a vDSO, whose image reads as a file.
  bool is_memory_image() const { return is_memory_image_; }

  // Knows the sections for unwinding (".eh_frame", ".eh_frame_hdr", ".debug_frame", ".text") and for readers of CPython
  // (".PyRuntime", ".AsyncioDebug"). nullptr if there is none. Without section headers PT_GNU_EH_FRAME is used, and
  // ".eh_frame" ends where its segment ends. Every section lies within the file as it was at Open.
  const Section* FindSection(std::string_view name) const;

  // Exactly `size_bytes` at `file_offset`; fails if the file has fewer or the size is over `limit_bytes`.
  Result<std::vector<uint8_t>> Read(uint64_t file_offset, uint64_t size_bytes, uint64_t limit_bytes = 64 << 20) const;

  // svma of what is mapped from `file_offset`, by the PT_LOAD that holds it; nullopt if none does. p_vaddr may differ from
  // p_offset.
  std::optional<uint64_t> FileOffsetToSvma(uint64_t file_offset) const;
  // Position in fd() of the byte at `svma`; nullopt if it is not in the file.
  std::optional<uint64_t> SvmaToPosition(uint64_t svma) const;

 private:
  friend class ModuleParser;
  Module() = default;

  Fd fd_;
  std::string path_;
  FileIdentity identity_{};
  std::string build_id_;
  bool is_memory_image_ = false;
  uint64_t lowest_svma_ = 0;
  std::vector<Segment> segments_;
  std::vector<std::pair<std::string, Section>> sections_;
};

}  // namespace stackd

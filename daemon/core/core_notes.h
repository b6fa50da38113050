// The notes of a core file, one after the other, and the one that lists mapped files.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stackd {

struct CoreMapping;

struct CoreNote {
  uint32_t type = 0;        // NT_PRSTATUS ...; 0: of another name than "CORE"
  uint64_t offset = 0;      // of what it says, in the file
  uint64_t size_bytes = 0;  // of what it says
};

// Finds notes. Each costs one read of a few bytes, whatever it says.
class CoreNotes {
 public:
  // Notes lie in `size_bytes` at `offset` of the file `fd`.
  CoreNotes(int fd, uint64_t offset, uint64_t size_bytes) : fd_(fd), at_(offset), end_(offset + size_bytes) {}

  // nullopt: there is none any more, or it makes no sense.
  std::optional<CoreNote> Next();

  // What the note says; empty if that is over `limit_bytes`, or cannot be read.
  std::string Read(const CoreNote& note, uint64_t limit_bytes) const;

  // False if it is shorter.
  template <typename T>
  bool ReadInto(const CoreNote& note, T* out) const {
    return note.size_bytes >= sizeof(T) &&
           pread(fd_, out, sizeof(T), static_cast<off_t>(note.offset)) == ssize_t{sizeof(T)};
  }

 private:
  const int fd_;
  uint64_t at_;
  const uint64_t end_;
};

// What NT_FILE says; by address, those left out that make no sense or overlap.
std::vector<CoreMapping> ParseCoreMappings(std::string_view bytes);

}  // namespace stackd

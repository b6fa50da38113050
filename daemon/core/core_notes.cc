#include "daemon/core/core_notes.h"

#include <elf.h>
#include <string.h>

#include <algorithm>
#include <span>

#include "daemon/base/text.h"
#include "daemon/core/core_file.h"
#include "daemon/modules/byte_reader.h"

namespace stackd {
namespace {

// The name of the kernel's notes.
constexpr char kName[] = "CORE";
// A path has as many at most.
constexpr size_t kMaxPathBytes = 4096;

uint64_t Padded(uint64_t size_bytes) { return (size_bytes + 3) & ~uint64_t{3}; }

}  // namespace

std::optional<CoreNote> CoreNotes::Next() {
  struct {
    Elf64_Nhdr header;
    char name[sizeof(kName)];
  } begin{};
  if (end_ - at_ < sizeof(begin.header)) return std::nullopt;
  const uint64_t want = std::min<uint64_t>(sizeof(begin), end_ - at_);
  if (pread(fd_, &begin, want, static_cast<off_t>(at_)) != static_cast<ssize_t>(want)) return std::nullopt;
  CoreNote note{.offset = at_ + sizeof(begin.header) + Padded(begin.header.n_namesz), .size_bytes = begin.header.n_descsz};
  if (note.offset > end_ || note.size_bytes > end_ - note.offset) return std::nullopt;
  at_ = std::min(end_, note.offset + Padded(note.size_bytes));
  const bool is_kernels = begin.header.n_namesz == sizeof(kName) && memcmp(begin.name, kName, sizeof(kName)) == 0;
  if (is_kernels) note.type = begin.header.n_type;
  return note;
}

std::string CoreNotes::Read(const CoreNote& note, uint64_t limit_bytes) const {
  if (note.size_bytes > limit_bytes) return {};
  std::string bytes(note.size_bytes, '\0');
  const ssize_t got = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(note.offset));
  return got == static_cast<ssize_t>(bytes.size()) ? bytes : std::string();
}

// count, bytes of a page; count times: start, end, page in the file; then the paths.
std::vector<CoreMapping> ParseCoreMappings(std::string_view bytes) {
  ByteReader reader({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  const uint64_t count = reader.U64(), page_bytes = reader.U64();
  constexpr uint64_t kEntryBytes = 24;
  if (!reader.ok() || count > reader.remaining() / kEntryBytes) return {};
  ByteReader paths = reader;
  paths.Take(count * kEntryBytes);
  std::vector<CoreMapping> mappings;
  for (uint64_t i = 0; i < count; i++) {
    CoreMapping mapping;
    mapping.start_avma = reader.U64();
    mapping.end_avma = reader.U64();
    const bool fits = !__builtin_mul_overflow(reader.U64(), page_bytes, &mapping.file_offset);
    const std::span<const uint8_t> path = paths.String();
    if (!paths.ok()) break;
    if (!fits || mapping.start_avma >= mapping.end_avma || path.size() > kMaxPathBytes) continue;
    mapping.path = ToValidUtf8({reinterpret_cast<const char*>(path.data()), path.size()});
    mappings.push_back(std::move(mapping));
  }
  std::ranges::stable_sort(mappings, {}, &CoreMapping::start_avma);
  uint64_t end_avma = 0;
  std::erase_if(mappings, [&](const CoreMapping& mapping) {
    if (mapping.start_avma < end_avma) return true;
    end_avma = mapping.end_avma;
    return false;
  });
  return mappings;
}

}  // namespace stackd

#include "daemon/core/core_layout.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace stackd {
namespace {

constexpr uint64_t kPageBytes = 4096;

// What a program header in the first page of a file says of a range of addresses.
struct Allowed {
  uint64_t start_avma, end_avma;
  bool readable, executable;
};

// What the segments of an ELF file say that is mapped from `start_avma` and begins with `page`.
std::vector<Allowed> AllowedBy(std::string_view page, uint64_t start_avma) {
  Elf64_Ehdr header;
  if (page.size() < sizeof(header)) return {};
  memcpy(&header, page.data(), sizeof(header));
  const bool is_elf = memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_phentsize == sizeof(Elf64_Phdr);
  if (!is_elf || header.e_phoff > page.size()) return {};
  const size_t count = std::min<size_t>(header.e_phnum, (page.size() - header.e_phoff) / sizeof(Elf64_Phdr));
  std::vector<Elf64_Phdr> segments(count);
  if (count > 0) memcpy(segments.data(), page.data() + header.e_phoff, count * sizeof(Elf64_Phdr));
  std::erase_if(segments, [](const Elf64_Phdr& segment) { return segment.p_type != PT_LOAD; });
  const auto first = std::ranges::find(segments, 0u, [](const Elf64_Phdr& segment) { return segment.p_offset; });
  if (first == segments.end()) return {};
  const uint64_t bias = start_avma - first->p_vaddr;
  std::vector<Allowed> allowed;
  for (const Elf64_Phdr& segment : segments) {
    if ((segment.p_flags & PF_W) != 0) continue;
    allowed.push_back({.start_avma = (bias + segment.p_vaddr) & ~(kPageBytes - 1),
                       .end_avma = bias + segment.p_vaddr + segment.p_memsz,
                       .readable = (segment.p_flags & PF_R) != 0,
                       .executable = (segment.p_flags & PF_X) != 0});
  }
  return allowed;
}

class Layouter {
 public:
  explicit Layouter(const CoreFile& core) : core_(core), mapping_(core.mappings().begin()) {}

  CoreLayout Run() {
    for (const CoreSegment& segment : core_.segments()) AddSegment(segment);
    while (mapping_ != core_.mappings().end()) PassMapping();
    AddLeftOut();
    FindHeap();
    return std::move(layout_);
  }

 private:
  // Both are by address: each mapping is looked at while segments reach it.
  void AddSegment(const CoreSegment& segment) {
    for (uint64_t at = segment.start_avma; at < segment.end_avma;) {
      while (mapping_ != core_.mappings().end() && mapping_->end_avma <= at) PassMapping();
      const bool has_mapping = mapping_ != core_.mappings().end() && mapping_->start_avma < segment.end_avma;
      CorePart part = PartOf(segment, at);
      if (has_mapping && mapping_->start_avma > at) {
        part.end_avma = mapping_->start_avma;
      } else if (has_mapping) {
        part.end_avma = std::min(segment.end_avma, mapping_->end_avma);
        AddFile(*mapping_, &part);
        is_covered_ = true;
      }
      part.core_bytes = std::min(part.core_bytes, part.end_avma - at);
      layout_.parts.push_back(part);
      at = part.end_avma;
    }
  }

  static CorePart PartOf(const CoreSegment& segment, uint64_t at) {
    const uint64_t before = at - segment.start_avma;
    return {.start_avma = at,
            .end_avma = segment.end_avma,
            .readable = segment.readable,
            .writable = segment.writable,
            .executable = segment.executable,
            .core_offset = segment.file_offset + before,
            .core_bytes = segment.file_bytes - std::min(segment.file_bytes, before),
            .cut = segment.cut && segment.writable};
  }

  // `part` is one of `mapping`, and the next of all.
  void AddFile(const CoreMapping& mapping, CorePart* part) {
    const auto next = static_cast<int32_t>(layout_.files.size());
    const auto [it, is_new] = by_path_.try_emplace(mapping.path, next);
    if (is_new) layout_.files.push_back({.path = mapping.path});
    part->file = it->second;
    part->file_offset = mapping.file_offset + (part->start_avma - mapping.start_avma);
    CoreLayoutFile& file = layout_.files[static_cast<size_t>(part->file)];
    file.has_code = file.has_code || part->executable;
    if (part->file_offset == 0 && file.first_part < 0) file.first_part = std::ssize(layout_.parts);
    const uint64_t entry_avma = core_.auxiliary().entry_avma;
    if (entry_avma >= part->start_avma && entry_avma < part->end_avma) layout_.executable = part->file;
  }

  void PassMapping() {
    if (!is_covered_) left_out_.push_back(&*mapping_);
    is_covered_ = false;
    ++mapping_;
  }

  // Adds mappings without a segment, when the first parts of all files are known.
  void AddLeftOut() {
    std::vector<CorePart> parts;
    for (const CoreMapping* mapping : left_out_) {
      const auto allowed = AllowedIn(*mapping);
      if (!allowed) continue;
      CorePart part{.start_avma = mapping->start_avma,
                    .end_avma = mapping->end_avma,
                    .readable = allowed->readable,
                    .executable = allowed->executable};
      AddFile(*mapping, &part);
      parts.push_back(part);
    }
    Insert(std::move(parts));
  }

  std::optional<Allowed> AllowedIn(const CoreMapping& mapping) const {
    const auto known = by_path_.find(mapping.path);
    if (known == by_path_.end()) return std::nullopt;
    const CoreLayoutFile& file = layout_.files[static_cast<size_t>(known->second)];
    if (file.first_part < 0) return std::nullopt;
    const CorePart& first = layout_.parts[static_cast<size_t>(file.first_part)];
    for (const Allowed& allowed : AllowedBy(FirstBytes(core_, layout_, file, kPageBytes), first.start_avma)) {
      if (mapping.start_avma >= allowed.start_avma && mapping.start_avma < allowed.end_avma) return allowed;
    }
    return std::nullopt;
  }

  // The kernel puts it above the program and what the program has of zeros, at a random distance.
  void FindHeap() {
    constexpr uint64_t kMaxDistanceBytes = 1ull << 30;
    // Code made at run time, of programs that ask for low addresses (MAP_32BIT).
    constexpr uint64_t kLowStart = 1ull << 30, kLowEnd = 2ull << 30;
    const std::vector<CorePart>& parts = layout_.parts;
    if (layout_.executable < 0) return;
    const auto of_program = [&](const CorePart& part) { return part.file == layout_.executable; };
    const auto last = std::ranges::find_if(parts.rbegin(), parts.rend(), of_program);
    uint64_t end_avma = last->end_avma;
    for (auto part = last.base(); part != parts.end() && part->file < 0 && part->writable; ++part) {
      const bool is_low = part->start_avma >= kLowStart && part->start_avma < kLowEnd;
      if (is_low || part->start_avma - end_avma > kMaxDistanceBytes) return;
      if (part->start_avma != end_avma) {
        layout_.heap = part - parts.begin();
        return;
      }
      end_avma = part->end_avma;
    }
  }

  // Both are by address.
  void Insert(std::vector<CorePart> parts) {
    if (parts.empty()) return;
    std::vector<size_t> place(layout_.parts.size());
    std::vector<CorePart> all;
    all.reserve(layout_.parts.size() + parts.size());
    auto next = parts.begin();
    for (size_t i = 0; i < layout_.parts.size(); i++) {
      while (next != parts.end() && next->start_avma < layout_.parts[i].start_avma) all.push_back(*next++);
      place[i] = all.size();
      all.push_back(layout_.parts[i]);
    }
    all.insert(all.end(), next, parts.end());
    for (CoreLayoutFile& file : layout_.files) {
      if (file.first_part >= 0) file.first_part = static_cast<int64_t>(place[static_cast<size_t>(file.first_part)]);
    }
    layout_.parts = std::move(all);
  }

  const CoreFile& core_;
  std::vector<CoreMapping>::const_iterator mapping_;
  bool is_covered_ = false;  // a part of the mapping has a segment
  std::vector<const CoreMapping*> left_out_;
  CoreLayout layout_;
  std::unordered_map<std::string_view, int32_t> by_path_;
};

// As the kernel writes it, so that a line stays one.
std::string Escaped(std::string_view path) {
  std::string text;
  for (const char c : path) {
    if (c == '\n') {
      text += "\\012";
    } else {
      text += c;
    }
  }
  return text;
}

// What an anonymous part is for, in the kernel's words; empty: not known.
std::string_view PurposeOf(const CorePart& part, const CoreLayout& layout, const CoreAuxiliary& auxiliary) {
  const auto holds = [&](uint64_t avma) { return avma != 0 && avma >= part.start_avma && avma < part.end_avma; };
  if (holds(auxiliary.main_stack_avma)) return "[stack]";
  if (holds(auxiliary.vdso_avma)) return "[vdso]";
  if (&part - layout.parts.data() == layout.heap) return "[heap]";
  return {};
}

}  // namespace

CoreLayout LayOut(const CoreFile& core) { return Layouter(core).Run(); }

std::string FirstBytes(const CoreFile& core, const CoreLayout& layout, const CoreLayoutFile& file, size_t limit_bytes) {
  if (file.first_part < 0) return {};
  const CorePart& part = layout.parts[static_cast<size_t>(file.first_part)];
  std::string bytes(std::min<uint64_t>(part.core_bytes, limit_bytes), '\0');
  const ssize_t got = pread(core.fd(), bytes.data(), bytes.size(), static_cast<off_t>(part.core_offset));
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

std::string MapsText(const CoreFile& core, const CoreLayout& layout) {
  std::string text;
  for (const CorePart& part : layout.parts) {
    const CoreLayoutFile* file = part.file < 0 ? nullptr : &layout.files[static_cast<size_t>(part.file)];
    const bool is_shared = file != nullptr && part.writable && !file->has_code;
    char line[128];
    const int length = snprintf(line, sizeof(line), "%lx-%lx %c%c%c%c %08lx 00:00 %d ", part.start_avma, part.end_avma,
                                part.readable ? 'r' : '-', part.writable ? 'w' : '-', part.executable ? 'x' : '-',
                                is_shared ? 's' : 'p', part.file_offset, part.file + 1);
    text.append(line, static_cast<size_t>(length));
    text += file != nullptr ? Escaped(file->path) : PurposeOf(part, layout, core.auxiliary());
    text += '\n';
  }
  return text;
}

}  // namespace stackd

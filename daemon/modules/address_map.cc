#include "daemon/modules/address_map.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <optional>

namespace stackd {
namespace {

constexpr uint64_t kPageBytes = 4096;

// Takes a number off the front of `text`, and the one character after it, which must be `separator`.
bool TakeNumber(std::string_view& text, int base, char separator, uint64_t& number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end == text.data() + text.size() || *end != separator) return false;
  text.remove_prefix(end - text.data() + 1);
  return true;
}

// "7f01c000-7f01d000 r-xp 00002000 08:01 1234      /usr/lib/libc.so.6"
std::optional<Mapping> ParseLine(std::string_view line) {
  Mapping mapping{};
  uint64_t major = 0, minor = 0;
  if (!TakeNumber(line, 16, '-', mapping.start_avma) || !TakeNumber(line, 16, ' ', mapping.end_avma)) return std::nullopt;
  if (mapping.start_avma >= mapping.end_avma) return std::nullopt;
  if (line.size() < 5 || line[4] != ' ') return std::nullopt;
  mapping.readable = line[0] == 'r';
  mapping.writable = line[1] == 'w';
  mapping.executable = line[2] == 'x';
  mapping.shared = line[3] == 's';
  line.remove_prefix(5);
  if (!TakeNumber(line, 16, ' ', mapping.file_offset) || !TakeNumber(line, 16, ':', major) ||
      !TakeNumber(line, 16, ' ', minor)) {
    return std::nullopt;
  }
  mapping.device = makedev(major, minor);
  auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), mapping.inode);
  if (error != std::errc()) return std::nullopt;
  line.remove_prefix(end - line.data());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  mapping.path = line;
  return mapping;
}

}  // namespace

uint64_t AddressMap::NextId() {
  static std::atomic<uint64_t> last_id{0};
  return last_id.fetch_add(1, std::memory_order_relaxed) + 1;
}

const Mapping* AddressMap::Find(uint64_t avma) const {
  auto after = std::upper_bound(mappings_.begin(), mappings_.end(), avma,
                                [](uint64_t wanted, const Mapping& mapping) { return wanted < mapping.start_avma; });
  if (after == mappings_.begin()) return nullptr;
  const Mapping& mapping = *std::prev(after);
  return avma < mapping.end_avma ? &mapping : nullptr;
}

std::vector<Mapping> ParseMaps(std::string_view text) {
  std::vector<Mapping> mappings;
  while (!text.empty()) {
    size_t length = std::min(text.find('\n'), text.size());
    std::optional<Mapping> mapping = ParseLine(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
    // The kernel lists by address. What was read while the process mapped and unmapped may repeat itself.
    bool in_order = mapping && (mappings.empty() || mapping->start_avma >= mappings.back().end_avma);
    if (in_order) mappings.push_back(*std::move(mapping));
  }
  return mappings;
}

std::optional<uint64_t> MappingBias(const Mapping& mapping, const Module& module) {
  // A copy of memory without a file: the process has it whole, from its lowest address.
  if (module.is_memory_image() && mapping.file_offset == 0) {
    return mapping.start_avma - module.lowest_svma() / kPageBytes * kPageBytes;
  }
  const Segment* best = nullptr;
  int best_score = -1;
  for (const Segment& segment : module.segments()) {
    uint64_t first_page = segment.file_offset / kPageBytes * kPageBytes;
    if (segment.file_bytes == 0 || mapping.file_offset < first_page ||
        mapping.file_offset >= segment.file_offset + segment.file_bytes) {
      continue;
    }
    // Two segments may share a page of the file, which is then mapped twice: the permissions and the start tell them apart.
    int score = 4 * (segment.executable == mapping.executable) + 2 * (mapping.file_offset == first_page) +
                (mapping.file_offset >= segment.file_offset);
    if (score > best_score) {
      best = &segment;
      best_score = score;
    }
  }
  if (best == nullptr) return std::nullopt;
  return mapping.start_avma - mapping.file_offset - (best->svma - best->file_offset);
}

}  // namespace stackd

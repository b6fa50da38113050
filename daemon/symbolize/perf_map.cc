#include "daemon/symbolize/perf_map.h"

#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include "daemon/base/text.h"

namespace stackd {
namespace {

constexpr size_t kMaxNameBytes = 4096;

// Takes a hexadecimal number, and the blank behind it, from the front of `line`.
std::optional<uint64_t> TakeHex(std::string_view* line) {
  uint64_t number = 0;
  if (line->starts_with("0x")) line->remove_prefix(2);
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), number, 16);
  if (error != std::errc() || end == line->data() + line->size() || *end != ' ') return std::nullopt;
  line->remove_prefix(static_cast<size_t>(end - line->data()) + 1);
  return number;
}

}  // namespace

PerfMap::PerfMap(std::string all, size_t max_symbols) : text_(std::move(all)) {
  std::string_view text = text_;
  while (!text.empty()) {
    const size_t length = text.find('\n');
    std::string_view line = text.substr(0, length);
    // The last line may just be being written.
    if (length == std::string_view::npos) return;
    text.remove_prefix(length + 1);
    const auto start = TakeHex(&line);
    const auto size_bytes = start ? TakeHex(&line) : std::nullopt;
    if (!size_bytes || *start + *size_bytes < *start || line.empty() || symbols_.size() >= max_symbols) {
      ++left_out_;
      continue;
    }
    if (*size_bytes == 0) continue;
    Add(*start, *start + *size_bytes, line.substr(0, kMaxNameBytes));
  }
}

void PerfMap::Add(uint64_t start, uint64_t end, std::string_view name) {
  auto next = symbols_.lower_bound(start);
  if (next != symbols_.begin() && std::prev(next)->second.end > start) --next;
  while (next != symbols_.end() && next->first < end) next = symbols_.erase(next);
  symbols_.emplace_hint(next, start, Symbol{end, name});
}

std::string PerfMap::NameOf(uint64_t avma) const {
  const auto behind = symbols_.upper_bound(avma);
  if (behind == symbols_.begin()) return "";
  const Symbol& symbol = std::prev(behind)->second;
  return avma < symbol.end ? ToValidUtf8(symbol.name) : "";
}

}  // namespace stackd

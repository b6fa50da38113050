#include "daemon/export/printable.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace stackd {
namespace {

constexpr size_t kMaxNameBytes = 4 << 10;

struct CodePoint {
  uint32_t value;
  size_t size_bytes;  // 0: the text does not begin with well-formed UTF-8
};

// The first code point of `text`, which is not empty.
CodePoint FirstCodePoint(std::string_view text) {
  constexpr CodePoint kMalformed{0, 0};
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};

  const size_t size_bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size_bytes) return kMalformed;
  uint32_t value = lead & (0x7f >> size_bytes);
  for (size_t i = 1; i < size_bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return kMalformed;
    value = value << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kSmallest[size_bytes] || value > 0x10ffff || surrogate) return kMalformed;
  return {value, size_bytes};
}

bool IsPlain(char c) { return c >= ' ' && c <= '~'; }

bool IsObeyed(uint32_t value) {
  const bool control = value < 0x20 || (value >= 0x7f && value <= 0x9f);
  const bool separator = value == 0x2028 || value == 0x2029;
  const bool direction = value == 0x061c || value == 0x200e || value == 0x200f || (value >= 0x202a && value <= 0x202e) ||
                         (value >= 0x2066 && value <= 0x2069);
  return control || separator || direction;
}

std::string Escaped(uint32_t value) {
  char text[16];
  snprintf(text, sizeof(text), value < 0x100 ? "\\x%02x" : "\\u{%x}", value);
  return text;
}

}  // namespace

std::string Printable(std::string_view text) {
  if (std::ranges::all_of(text, IsPlain)) return std::string(text);
  std::string printable;
  while (!text.empty()) {
    const CodePoint first = FirstCodePoint(text);
    const size_t size_bytes = std::max<size_t>(first.size_bytes, 1);
    if (first.size_bytes == 0) {
      printable += Escaped(static_cast<unsigned char>(text[0]));
    } else if (IsObeyed(first.value)) {
      printable += Escaped(first.value);
    } else {
      printable += text.substr(0, size_bytes);
    }
    text.remove_prefix(size_bytes);
  }
  return printable;
}

std::string PrintableBeginning(std::string_view text) {
  if (text.size() <= kMaxNameBytes) return Printable(text);
  size_t end = kMaxNameBytes;
  // Not in the middle of a letter.
  while (end > kMaxNameBytes - 3 && (text[end] & 0xc0) == 0x80) --end;
  return Printable(text.substr(0, end)) + "…";
}

}  // namespace stackd

#include "daemon/base/text.h"

#include <cstdint>
#include <cstring>

namespace stackd {
namespace {

// Length of the valid sequence that `text` starts with; 0 if there is none. (Unicode 15, table 3-7.)
size_t ValidSequence(std::string_view text) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  auto is_tail = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return is_tail(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    if (!is_tail(1) || !is_tail(2)) return 0;
    if (first == 0xe0 && byte(1) < 0xa0) return 0;
    if (first == 0xed && byte(1) > 0x9f) return 0;  // surrogates
    return 3;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    if (!is_tail(1) || !is_tail(2) || !is_tail(3)) return 0;
    if (first == 0xf0 && byte(1) < 0x90) return 0;
    if (first == 0xf4 && byte(1) > 0x8f) return 0;
    return 4;
  }
  return 0;
}

// Nearly all names are, and a dump has tens of thousands of them.
bool IsAscii(std::string_view text) {
  uint64_t bits = 0;
  size_t i = 0;
  for (; i + sizeof(bits) <= text.size(); i += sizeof(bits)) {
    uint64_t eight;
    memcpy(&eight, text.data() + i, sizeof(eight));
    bits |= eight;
  }
  for (; i < text.size(); i++) bits |= static_cast<uint8_t>(text[i]);
  return (bits & 0x8080808080808080) == 0;
}

}  // namespace

std::string ToValidUtf8(std::string_view text) {
  if (IsAscii(text)) return std::string(text);
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    size_t length = ValidSequence(text);
    if (length == 0) {
      result.push_back('?');
      text.remove_prefix(1);
    } else {
      result.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return result;
}

std::string HexOfBytes(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned char byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace stackd

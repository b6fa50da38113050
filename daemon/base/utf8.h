// Text from outside made fit for protobuf, JSON and terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stackd {

// Bytes of the well-formed UTF-8 sequence that `text` starts with; 0 if there is none.
inline size_t Utf8SequenceBytes(std::string_view text) {
  if (text.empty()) return 0;
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  size_t size = lead >= 0xc2 && lead < 0xe0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) >= 0xa0)) return 0;
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) >= 0x90)) return 0;
  return size;
}

// `text` with "?" for each byte that is not UTF-8 and for each control character: protobuf refuses the former, and a
// terminal obeys the latter.
inline std::string PrintableUtf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    size_t size = Utf8SequenceBytes(text);
    unsigned char first = static_cast<unsigned char>(text[0]);
    bool control = size == 1 ? first < 0x20 || first == 0x7f
                             : size == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
    if (size == 0 || control) {
      result += '?';
      size = size == 0 ? 1 : size;
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return result;
}

}  // namespace stackd

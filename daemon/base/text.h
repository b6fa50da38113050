// Text that came from a hostile process, made safe to store and send.
#pragma once

#include <string>
#include <string_view>

namespace stackd {

// Valid UTF-8: each byte that is not part of a valid sequence becomes "?". (A proto string must be valid UTF-8.)
std::string ToValidUtf8(std::string_view text);

// Two hex digits a byte, lower case: a build-id as people write it.
std::string HexOfBytes(std::string_view bytes);

// A C string in a field of fixed size, as valid UTF-8.
template <size_t N>
std::string FieldText(const char (&field)[N]) {
  std::string_view text(field, N);
  return ToValidUtf8(text.substr(0, text.find('\0')));
}

}  // namespace stackd

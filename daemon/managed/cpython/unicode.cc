#include "daemon/managed/cpython/unicode.h"

#include <string.h>

#include "daemon/base/text.h"

namespace stackd {
namespace {

void Append(uint32_t character, std::string* text) {
  const auto tail = [&](int shift) { text->push_back(static_cast<char>(0x80 | (character >> shift & 0x3f))); };
  if (character < 0x80) {
    text->push_back(static_cast<char>(character));
  } else if (character < 0x800) {
    text->push_back(static_cast<char>(0xc0 | character >> 6));
    tail(0);
  } else if (character >= 0xd800 && character < 0xe000) {
    text->push_back('?');
  } else if (character < 0x10000) {
    text->push_back(static_cast<char>(0xe0 | character >> 12));
    tail(6);
    tail(0);
  } else if (character < 0x110000) {
    text->push_back(static_cast<char>(0xf0 | character >> 18));
    tail(12);
    tail(6);
    tail(0);
  } else {
    text->push_back('?');
  }
}

}  // namespace

std::string DecodeUnicode(std::string_view characters, uint32_t kind) {
  if (kind != 1 && kind != 2 && kind != 4) return ToValidUtf8(characters);
  std::string text;
  for (size_t i = 0; i + kind <= characters.size(); i += kind) {
    uint32_t character = 0;
    memcpy(&character, characters.data() + i, kind);
    Append(character, &text);
  }
  return text;
}

}  // namespace stackd

// Text that came from a hostile process, made safe to print.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "daemon/base/text.h"

namespace stackd {

// Valid UTF-8 with "?" for each control character, which a terminal would obey and a line of a log would break at.
inline std::string PrintableText(std::string_view text) {
  std::string result = ToValidUtf8(text);
  for (size_t i = 0; i < result.size(); ++i) {
    auto byte = static_cast<unsigned char>(result[i]);
    if (byte < 0x20 || byte == 0x7f) result[i] = '?';
    // U+0080 to U+009F.
    bool is_c1 = byte == 0xc2 && i + 1 < result.size() && static_cast<unsigned char>(result[i + 1]) < 0xa0;
    if (is_c1) result.replace(i, 2, "?");
  }
  return result;
}

}  // namespace stackd

// Names in text for terminals. Thread names, functions and paths come from processes that may wish an operator ill.
#pragma once

#include <string>
#include <string_view>

namespace stackd {

// `text` on one line, without what a terminal obeys: control characters (C0, DEL, C1), line and paragraph separators and
// characters that change the direction of text are written as \xNN or \u{NNNN}; so are bytes that are no UTF-8.
std::string Printable(std::string_view text);

}  // namespace stackd

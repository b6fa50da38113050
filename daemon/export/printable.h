// Names in text for terminals and viewers. Thread names, functions and paths come from processes that may wish an operator
// ill.
#pragma once

#include <string>
#include <string_view>

namespace stackd {

// Writes `text` on one line, without what a terminal obeys. Control characters (C0, DEL, C1), line and paragraph separators
// and characters that change the direction of text become \xNN or \u{NNNN}. So do bytes that are no UTF-8.
std::string Printable(std::string_view text);

// Does the same for a file that a viewer shows. A name above 4 KiB is cut, with "…": viewers lay out each name whole.
std::string PrintableBeginning(std::string_view text);

}  // namespace stackd

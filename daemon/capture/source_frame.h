// What an address stands for in the source: what symbolizing gives.
#pragma once

#include <string>
#include <vector>

#include "daemon/capture/language.h"

namespace stackd {

struct SourceFrame {
  std::string function;  // demangled; empty if unknown
  std::string file;      // empty if unknown
  int line = 0;
  bool inlined = false;  // into the next one in the list
  Language language = Language::kUnknown;
};

// What one address stands for.
struct SourceLocation {
  // Innermost first; the last one is the function itself. Empty: nothing is known.
  std::vector<SourceFrame> frames;
  // Why function or line are missing, in words for an operator; empty if nothing is missing.
  std::string unnamed_reason;
};

}  // namespace stackd

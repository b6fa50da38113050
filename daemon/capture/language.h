#pragma once

#include <cstdint>

namespace stackd {

// That a function is written in. Numbers as in stackd.v1.Language.
enum class Language : uint8_t {
  kUnknown = 0,
  kCpp = 1,
  kRust = 2,
  kGo = 3,
  kPython = 4,
  kJava = 5,
  kJavascript = 6,
  kPhp = 7,
  kRuby = 8,
  kLast = kRuby,
};

}  // namespace stackd

// Frames that a language's runtime told of, and names of functions in any language.
#pragma once

#include <string>

#include "daemon/analyze/names/function_name.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

inline bool IsOfRuntime(const v1::Frame& frame) {
  return frame.origin() == v1::Frame::RUNTIME || frame.origin() == v1::Frame::RUNTIME_UNPLACED;
}

// As a person says it. What C++ has around names ("<module>", "operator()") other languages have in them.
inline std::string PlainFunctionOf(const v1::Frame& frame) {
  return IsOfRuntime(frame) ? frame.function() : PlainFunction(frame.function());
}

}  // namespace stackd

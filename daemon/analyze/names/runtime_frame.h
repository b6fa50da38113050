// Frames that a language's runtime told of, and names of functions in any language.
#pragma once

#include <string>
#include <string_view>

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

// A function of a library in a language with a runtime.
struct LibraryFunction {
  std::string_view name;  // its last parts, as the runtime names it: "FutureTask.get"
  std::string_view file;  // the end of its path; empty: any
};

inline bool IsCallOf(const v1::Frame& frame, const LibraryFunction& function) {
  const std::string_view name = frame.function();
  if (!IsOfRuntime(frame) || !name.ends_with(function.name) || !frame.file().ends_with(function.file)) return false;
  if (name.size() == function.name.size()) return true;
  const char before = name[name.size() - function.name.size() - 1];
  return before == '.' || before == '/';
}

}  // namespace stackd

// A stack as text, for both text formats.
#pragma once

#include <string>
#include <string_view>

#include "daemon/export/piecewise.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// "libfoo.so+0x1234" of a frame without a function; "[anon]" where there is no file.
std::string Place(const v1::Frame& frame);

// One line per frame, numbered as debuggers number them, each after `indent`; recursion is folded, and a stack that is not
// whole ends with the reason.
void WriteStack(const v1::Stack& stack, std::string_view indent, Piecewise* out);

}  // namespace stackd

// A stack as text, for both text formats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/export/piecewise.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// "libfoo.so+0x1234" of a frame without a function; "[anon]" where there is no file.
std::string Place(const v1::Frame& frame);

// " × 65,412": how often a frame that stands for a recursion occurs.
std::string Times(int64_t count);

// "7.9 MiB of the stack are not shown here: not copied"
std::string GapInWords(const v1::Stack& stack);

// One line per frame, numbered as debuggers number them, each after `indent`; recursion is folded, a gap in the middle is
// said, and a stack that is not whole ends with the reason.
void WriteStack(const v1::Stack& stack, std::string_view indent, Piecewise* out);

}  // namespace stackd

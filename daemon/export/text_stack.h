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

// Writes one line per frame, each after `indent`, numbered as debuggers number them. Folds recursion, tells of a gap in the
// middle, and ends a stack that is not whole with the reason.
void WriteStack(const v1::Stack& stack, std::string_view indent, Piecewise* out);

}  // namespace stackd

#include "daemon/assemble/stack_end.h"

namespace stackd {

std::string StackEndInWords(const v1::Stack& stack) {
  const std::string module = stack.frames().empty() ? "" : stack.frames().rbegin()->module();
  switch (stack.end()) {
    case v1::Stack::ROOT:
      return "";
    case v1::Stack::TRUNCATED:
      return "only its innermost part was copied, and the copy ends here";
    case v1::Stack::UNREADABLE:
      return "the next frame lies in memory that was not copied";
    case v1::Stack::NO_UNWIND_INFO:
      return module.empty() ? "no unwind information" : "no unwind information in " + module;
    case v1::Stack::NO_PROGRESS:
      return "the next frame does not lie nearer to the top of the stack";
    case v1::Stack::BAD_RETURN_ADDRESS:
      return "the next return address is outside all code";
    case v1::Stack::FRAME_LIMIT:
      return "it has more frames than are unwound";
    case v1::Stack::UNKNOWN_REGISTER:
      return "it was read while the thread slept, and the next frame depends on a register that only a signal shows";
    default:
      return "unknown reason";
  }
}

}  // namespace stackd

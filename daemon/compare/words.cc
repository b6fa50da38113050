#include "daemon/compare/words.h"

#include <algorithm>

#include "daemon/analyze/names/function_name.h"
#include "daemon/base/clock.h"
#include "daemon/compare/retry_function.h"
#include "daemon/compare/verdict.h"
#include "daemon/export/printable.h"
#include "daemon/export/wording.h"

namespace stackd {
namespace {

const v1::Frame& Innermost(const v1::Stack& stack) { return FunctionFromRoot(stack, FunctionCount(stack) - 1); }

std::string InnermostInWords(const v1::Stack* stack) {
  return stack == nullptr ? "no known function" : FunctionInWords(Innermost(*stack));
}

// What it does in the later dump.
std::string NowInWords(const v1::Thread& thread, const v1::Stack* stack) {
  const std::string wait = WaitInWords(thread);
  if (!wait.empty()) return wait;
  return Printable(thread.state()) + (stack == nullptr ? "" : ", in " + InnermostInWords(stack));
}

std::string MovedInWords(const ThreadProgress& thread) {
  const std::string from = InnermostInWords(thread.stack_before), to = InnermostInWords(thread.stack_after);
  const std::string wait = WaitInWords(*thread.after);
  if (from != to) return "moved from " + from + " to " + to + (wait.empty() ? "" : "; " + wait);
  if (!wait.empty()) return "moved; " + wait + (WaitsForTheSame(thread) ? ", as before" : "");
  return "moved; in " + to +
         (DifferenceOf(*thread.stack_before, *thread.stack_after, /*in_system_call=*/false) == StackDifference::kFunctions
              ? " in both dumps, called by others"
              : " again");
}

std::string WhyNotKnown(const ThreadProgress& thread) {
  const bool neither = thread.stack_before == nullptr && thread.stack_after == nullptr;
  const v1::Thread& without = thread.stack_before == nullptr ? *thread.before : *thread.after;
  return std::string("no stack in ") +
         (neither                          ? "either dump"
          : thread.stack_before == nullptr ? "the first dump"
                                           : "the later dump") +
         ": " + Printable(without.state());
}

std::string StayedInWords(const ThreadProgress& thread) {
  const std::string wait = WaitInWords(*thread.after);
  if (!wait.empty()) return wait + (WaitsForTheSame(thread) ? ", as before; ran in between" : "; ran in between");
  return "in " + KeptFunctionInWords(thread) + " in both dumps";
}

std::string UnchangedInWords(const ThreadProgress& thread) {
  const std::string wait = WaitInWords(*thread.after);
  if (wait.empty()) return "has not moved: " + NowInWords(*thread.after, thread.stack_after);
  return wait + (WaitsForTheSame(thread) ? ", in both dumps" : "");
}

}  // namespace

std::string TimeInWords(int64_t ns) {
  // Else 999.7 ms would be "1000 ms".
  if (ns > kNsPerSecond / 2) ns = (ns + kNsPerMs / 2) / kNsPerMs * kNsPerMs;
  google::protobuf::Duration duration;
  duration.set_seconds(ns / kNsPerSecond);
  duration.set_nanos(static_cast<int32_t>(ns % kNsPerSecond));
  return InWords(duration);
}

std::string ShareInWords(double core_share) {
  return std::to_string(std::clamp(static_cast<int>(core_share * 100 + 0.5), 0, 100)) + " % of a core";
}

std::string ThreadInWords(const v1::Thread& thread) {
  const std::string tid = "tid " + std::to_string(thread.tid());
  return thread.name().empty() ? "the thread with " + tid : "thread " + Printable(thread.name()) + " (" + tid + ")";
}

std::string FunctionInWords(const v1::Frame& frame) {
  if (!frame.function().empty()) return Printable(PlainLibcFunction(PlainFunction(frame.function())));
  if (frame.module().empty()) return Printable(frame.address());
  return Printable(frame.module() + "+" + frame.module_offset());
}

std::string KeptFunctionInWords(const ThreadProgress& thread) {
  const v1::Stack& stack = *thread.stack_after;
  size_t kept = thread.common_functions;
  // What it calls to try again is not what it is in.
  while (kept > 1 && IsRetry(FunctionFromRoot(stack, kept - 1).function())) --kept;
  return kept == 0 ? InnermostInWords(&stack) : FunctionInWords(FunctionFromRoot(stack, kept - 1));
}

std::string WaitInWords(const v1::Thread& thread) {
  return thread.wait().kind() == v1::Wait::SYSTEM_CALL ? "" : Printable(thread.wait().explanation());
}

std::string ProgressInWords(const ThreadProgress& thread) {
  if (IsOwnThread(thread)) return "takes the dumps";
  switch (thread.change()) {
    case v1::DumpComparison::STARTED:
      return "started in between; " + NowInWords(*thread.after, thread.stack_after);
    case v1::DumpComparison::ENDED:
      return "ended in between; was in " + InnermostInWords(thread.stack_before);
    case v1::DumpComparison::MOVED:
      return MovedInWords(thread);
    case v1::DumpComparison::SAME_FRAMES:
      return StayedInWords(thread);
    case v1::DumpComparison::UNCHANGED:
      return UnchangedInWords(thread);
    default:
      return WhyNotKnown(thread);
  }
}

}  // namespace stackd

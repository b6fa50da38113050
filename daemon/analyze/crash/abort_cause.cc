// Explains aborts: the last message, an exception or a panic, and the caller of abort().
#include <algorithm>
#include <span>
#include <utility>

#include "daemon/analyze/crash/verdict.h"
#include "daemon/analyze/names/function_name.h"
#include "daemon/base/printable.h"
#include "daemon/symbolize/demangle.h"

namespace stackd {
namespace {

// What a process dies of is said by the innermost frames.
constexpr int kInnermostFrames = 24;

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::span<const v1::Frame* const> Innermost(const CrashScene& scene) {
  if (scene.stack == nullptr) return {};
  const auto& frames = scene.stack->frames();
  return {frames.data(), static_cast<size_t>(std::min(frames.size(), kInnermostFrames))};
}

bool HasFunction(const CrashScene& scene, auto matches) {
  return std::ranges::any_of(Innermost(scene),
                             [&](const v1::Frame* frame) { return matches(PlainFunction(frame->function())); });
}

// "prog: file.c:12: f: Assertion `x > 0' failed." becomes "file.c:12: f: x > 0".
std::optional<std::string> FailedAssertion(const std::string& message, std::string_view program) {
  constexpr std::string_view kBegin = "Assertion `", kEnd = "' failed.";
  const size_t begin = message.find(kBegin);
  if (begin == message.npos || !message.ends_with(kEnd)) return std::nullopt;
  std::string_view where = std::string_view(message).substr(0, begin);
  std::string prefix = PrintableText(program.substr(program.rfind('/') + 1)) + ": ";
  if (where.starts_with(prefix)) where.remove_prefix(prefix.size());
  const size_t condition = begin + kBegin.size();
  return std::string(where) + message.substr(condition, message.size() - kEnd.size() - condition);
}

bool IsHeapMessage(std::string_view message) {
  constexpr std::string_view kBegins[] = {"free(): ",
                                          "malloc(): ",
                                          "realloc(): ",
                                          "calloc(): ",
                                          "munmap_chunk(): ",
                                          "mremap_chunk(): ",
                                          "corrupted ",
                                          "double free or corruption",
                                          "malloc_consolidate",
                                          "tcache_thread_shutdown(): ",
                                          "invalid fastbin entry",
                                          "break adjusted to free malloc space",
                                          "Fatal glibc error: malloc"};
  return std::ranges::any_of(kBegins, [&](std::string_view begin) { return message.starts_with(begin); });
}

std::optional<Verdict> FromMessage(const CrashScene& scene) {
  const std::string message = AbortMessage(scene.crash);
  if (message.empty()) return std::nullopt;
  if (const auto assertion = FailedAssertion(message, scene.capture.process.argv0)) {
    return Verdict{v1::Crash::ASSERTION, "assertion failed: " + *assertion};
  }
  if (IsHeapMessage(message)) return Verdict{v1::Crash::HEAP_CORRUPTION, "abort: " + message};
  if (Contains(message, "stack smashing detected")) {
    return Verdict{v1::Crash::FORTIFY, "stack smashing detected: a function wrote over the end of a buffer on its stack"};
  }
  if (Contains(message, "buffer overflow detected")) {
    return Verdict{v1::Crash::FORTIFY,
                   "buffer overflow detected: a call of the C library would have written over the end of a buffer"};
  }
  if (message.starts_with("*** ") && message.ends_with("***: terminated"))
    return Verdict{v1::Crash::FORTIFY, "abort: " + message};
  return Verdict{v1::Crash::ABORT, "abort: " + message};
}

// The function that called abort(); nullptr if it is not seen. The agent has an abort() too, which calls the C library's.
const v1::Frame* CallerOfAbort(const CrashScene& scene) {
  const auto frames = Innermost(scene);
  const auto is_abort = [](const v1::Frame* frame) { return PlainLibcFunction(frame->function()) == "abort"; };
  const auto abort = std::ranges::find_if(frames, is_abort);
  const auto caller = std::find_if_not(abort, frames.end(), is_abort);
  return caller == frames.end() ? nullptr : *caller;
}

bool IsTerminate(std::string_view function) {
  return function == "std::terminate" || function == "__cxxabiv1::__terminate" ||
         function == "__gnu_cxx::__verbose_terminate_handler";
}

// Whether the C++ runtime gave up, and not the program. Its own functions often have no names.
bool WasTerminated(const CrashScene& scene) {
  const v1::Frame* caller = CallerOfAbort(scene);
  return HasFunction(scene, IsTerminate) || (caller != nullptr && caller->module().starts_with("libstdc++.so"));
}

bool Has(const CrashScene& scene, std::string_view function) {
  return HasFunction(scene, [&](std::string_view name) { return name == function; });
}

std::optional<Verdict> FromException(const CrashScene& scene) {
  const bool terminated = WasTerminated(scene);
  const bool names_known = std::ranges::any_of(Innermost(scene), [](const v1::Frame* f) { return !f->function().empty(); });
  const std::string type = ExceptionType(scene.crash);
  if (!type.empty()) {
    if (names_known && !terminated) {
      return Verdict{v1::Crash::ABORT, "abort() while a C++ exception of type " + type + " was being handled"};
    }
    // Without a handler anywhere, the search for one is over. At a noexcept function it is still going on.
    const bool was_stopped = Has(scene, "__gxx_personality_v0") || Has(scene, "__cxa_call_terminate");
    return Verdict{v1::Crash::UNCAUGHT_EXCEPTION,
                   "uncaught C++ exception of type " + type + (was_stopped ? " in a noexcept function" : "")};
  }
  if (!terminated) return std::nullopt;
  if (Has(scene, "std::thread::~thread")) {
    return Verdict{v1::Crash::ABORT, "std::terminate(): a std::thread that was not joined was destroyed"};
  }
  if (Has(scene, "__cxa_pure_virtual")) return Verdict{v1::Crash::ABORT, "abort: call of a pure virtual function"};
  if (Has(scene, "__cxa_rethrow")) {
    return Verdict{v1::Crash::ABORT, "std::terminate(): `throw;` without an exception that is being handled"};
  }
  return Verdict{v1::Crash::ABORT, "std::terminate() was called"};
}

// What functions of Rust's library stand for when they panic.
std::optional<Verdict> FromPanic(const CrashScene& scene) {
  constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
      {"core::panicking::panic_bounds_check", "index out of bounds"},
      {"core::slice::index::slice_", "slice index out of bounds"},
      {"core::option::unwrap_failed", "unwrap() of None"},
      {"core::option::expect_failed", "expect() of None"},
      {"core::result::unwrap_failed", "unwrap() or expect() of an Err"},
      {"core::cell::panic_already_", "RefCell borrowed twice"},
      {"core::panicking::panic_const::panic_const_div_by_zero", "division by zero"},
      {"core::panicking::panic_const::panic_const_rem_by_zero", "division by zero"},
      {"core::panicking::panic_const::", "arithmetic overflow"},
      {"core::panicking::assert_failed", "assertion failed"},
      {"core::panicking::panic_cannot_unwind", "panic in a function that cannot unwind"},
      {"alloc::alloc::handle_alloc_error", "out of memory"},
  };
  for (const auto& [function, reason] : kReasons) {
    if (HasFunction(scene, [&](std::string_view name) { return name.starts_with(function); })) {
      return Verdict{v1::Crash::ABORT, "Rust panic: " + std::string(reason)};
    }
  }
  const bool panicked = HasFunction(scene, [](std::string_view name) {
    return name == "rust_panic" || name == "__rustc::rust_panic" || name.starts_with("core::panicking::") ||
           name.starts_with("std::panicking::");
  });
  return panicked ? std::optional(Verdict{v1::Crash::ABORT, "Rust panic"}) : std::nullopt;
}

}  // namespace

std::string AbortMessage(const CrashCapture& crash) {
  std::string_view text = crash.abort_message;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return PrintableText(text);
}

std::string ExceptionType(const CrashCapture& crash) {
  if (crash.exception_type.empty()) return "";
  if (IsUnhandledException(crash)) return PrintableText(crash.exception_type);
  // The name of a type alone does not say that it is one.
  constexpr std::string_view kMark = "_ZTS", kDemangledMark = "typeinfo name for ";
  const std::string name = Demangle(std::string(kMark) + crash.exception_type, ReturnType::kKeep);
  if (!name.starts_with(kDemangledMark)) return PrintableText(crash.exception_type);
  const std::string type = PrintableText(name.substr(kDemangledMark.size()));
  constexpr std::string_view kString = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
  return type == kString ? "std::string" : type;
}

Verdict ExplainAbort(const CrashScene& scene) {
  if (auto verdict = FromMessage(scene)) return *std::move(verdict);
  if (auto verdict = FromException(scene)) return *std::move(verdict);
  if (auto verdict = FromPanic(scene)) return *std::move(verdict);
  if (const v1::Frame* caller = CallerOfAbort(scene)) {
    const std::string& module = caller->module();
    const std::string name = caller->function().empty() ? module : PlainFunction(caller->function()) + " (" + module + ")";
    return {v1::Crash::ABORT, "abort() called by " + PrintableText(name)};
  }
  if (HasFunction(scene, [](std::string_view name) { return PlainLibcFunction(name) == "raise"; })) {
    return {v1::Crash::SENT, "SIGABRT sent by itself with raise()"};
  }
  return {v1::Crash::ABORT, "abort() was called"};
}

}  // namespace stackd

// A process that gave itself up, and what it said last.
#include <algorithm>
#include <span>

#include "daemon/analyze/function_name.h"
#include "daemon/analyze/verdict.h"
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

bool IsTerminate(std::string_view function) {
  return function == "std::terminate" || function == "__cxxabiv1::__terminate" ||
         function == "__gnu_cxx::__verbose_terminate_handler";
}

std::optional<Verdict> FromException(const CrashScene& scene) {
  const bool terminated = HasFunction(scene, IsTerminate);
  const bool names_known = std::ranges::any_of(Innermost(scene), [](const v1::Frame* f) { return !f->function().empty(); });
  const std::string type = ExceptionType(scene.crash);
  if (!type.empty()) {
    if (terminated || !names_known) return Verdict{v1::Crash::UNCAUGHT_EXCEPTION, "uncaught C++ exception of type " + type};
    return Verdict{v1::Crash::ABORT, "abort() while a C++ exception of type " + type + " was being handled"};
  }
  if (!terminated) return std::nullopt;
  if (HasFunction(scene, [](std::string_view function) { return function == "std::thread::~thread"; })) {
    return Verdict{v1::Crash::ABORT, "std::terminate(): a std::thread that was not joined was destroyed"};
  }
  if (HasFunction(scene, [](std::string_view function) { return function == "__cxa_pure_virtual"; })) {
    return Verdict{v1::Crash::ABORT, "call of a pure virtual function"};
  }
  return Verdict{v1::Crash::ABORT, "std::terminate() was called"};
}

bool IsRustPanic(std::string_view function) {
  return function == "rust_panic" || function == "rust_begin_unwind" || function == "__rust_start_panic" ||
         Contains(function, "core::panicking::") || Contains(function, "std::panicking::");
}

// "f (libfoo.so)" for the caller of abort(); empty if none is seen.
std::string CallerOfAbort(const CrashScene& scene) {
  const auto frames = Innermost(scene);
  const auto abort =
      std::ranges::find_if(frames, [](const v1::Frame* frame) { return PlainLibcFunction(frame->function()) == "abort"; });
  if (abort == frames.end() || std::next(abort) == frames.end()) return "";
  const v1::Frame& caller = **std::next(abort);
  if (caller.function().empty()) return caller.module();
  return PlainFunction(caller.function()) + " (" + caller.module() + ")";
}

}  // namespace

std::string AbortMessage(const CrashCapture& crash) {
  std::string_view text = crash.abort_message;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return PrintableText(text);
}

std::string ExceptionType(const CrashCapture& crash) {
  if (crash.exception_type.empty()) return "";
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
  if (HasFunction(scene, IsRustPanic)) return {v1::Crash::ABORT, "Rust panic"};
  const std::string caller = CallerOfAbort(scene);
  if (!caller.empty()) return {v1::Crash::ABORT, "abort() called by " + PrintableText(caller)};
  const bool raised = HasFunction(scene, [](std::string_view function) { return PlainLibcFunction(function) == "raise"; });
  if (raised) return {v1::Crash::SENT, "SIGABRT sent by itself with raise()"};
  return {v1::Crash::ABORT, "abort()"};
}

}  // namespace stackd

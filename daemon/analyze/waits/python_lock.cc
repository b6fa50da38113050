#include "daemon/analyze/waits/python_lock.h"

#include <algorithm>
#include <string_view>

#include "daemon/analyze/names/runtime_frame.h"

namespace stackd {
namespace {

// The function in which CPython waits for its locks (Python/thread_pthread.h); exported, so that it has a name everywhere.
constexpr std::string_view kAcquire = "PyThread_acquire_lock_timed";

std::string_view AfterLast(std::string_view text, char separator) { return text.substr(text.rfind(separator) + 1); }

// The functions of the standard library that are the program's way to a lock, and not to something that is built on one.
bool WaitsForLock(const v1::Frame& caller) {
  const std::string_view file = AfterLast(caller.file(), '/'), function = AfterLast(caller.function(), '.');
  if (file == "threading.py") return function == "__enter__" || function == "acquire";
  return file != "thread.py";  // of concurrent.futures: its workers wait for tasks
}

}  // namespace

bool IsPythonLock(const v1::Stack& stack) {
  const auto& frames = stack.frames();
  const auto caller = std::ranges::find_if(frames, IsOfRuntime);
  const auto acquire =
      std::find_if(frames.begin(), caller, [](const v1::Frame& frame) { return frame.function() == kAcquire; });
  if (acquire == caller || caller == frames.end() || caller->language() != v1::PYTHON) return false;
  // An extension module that waits has reasons of its own: _queue, for one.
  const bool in_interpreter =
      std::all_of(acquire, caller, [&](const v1::Frame& frame) { return frame.module() == acquire->module(); });
  return in_interpreter && WaitsForLock(*caller);
}

}  // namespace stackd

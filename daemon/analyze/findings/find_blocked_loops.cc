#include "daemon/analyze/findings/find_blocked_loops.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "daemon/analyze/names/runtime_frame.h"
#include "daemon/analyze/waits/wait_function.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

// As of CPython 3.8 to 3.14.
constexpr LibraryFunction kAsyncioTurn = {"_run_once", "asyncio/base_events.py"};
constexpr LibraryFunction kAsyncioCallback = {"_run", "asyncio/events.py"};
// As of Node.js 18 to 24. The second runs a loop of its own, until its child has ended.
constexpr std::string_view kNodeTurn = "uv_run";
constexpr LibraryFunction kNodeSpawn = {"spawnSync", "node:internal/child_process"};
// As of tokio 1.0 to 1.54.
constexpr std::string_view kTokioTurn = "tokio::runtime::scheduler::current_thread::";

bool IsJavaScript(const v1::Frame& frame) { return IsOfRuntime(frame) && frame.language() == v1::JAVASCRIPT; }

// Whether asyncio turns, and calls something meanwhile that does not turn it again.
bool IsInAsyncio(const v1::Stack& stack) {
  bool in_callback = false;
  for (const v1::Frame& frame : stack.frames()) {
    in_callback = in_callback || IsCallOf(frame, kAsyncioCallback);
    if (IsCallOf(frame, kAsyncioTurn)) return in_callback;
  }
  return false;
}

bool IsInNode(const v1::Stack& stack) {
  bool in_callback = false, turns_again = false, spawns = false;
  for (const v1::Frame& frame : stack.frames()) {
    in_callback = in_callback || IsJavaScript(frame);
    spawns = spawns || IsCallOf(frame, kNodeSpawn);
    if (frame.function() != kNodeTurn) continue;
    if (in_callback) return spawns || !turns_again;
    turns_again = true;
  }
  return false;
}

// What waits must not be tokio itself, for something to do.
bool IsInTokio(const v1::Stack& stack) {
  const int first = FindProgramFrame(stack, 0);
  if (first < 0) return false;
  const std::string function = PlainFunctionOf(stack.frames(first));
  if (function.starts_with("tokio::") || function.starts_with("mio::")) return false;
  return std::ranges::any_of(
      stack.frames(), [](const v1::Frame& frame) { return WaitFunctionName(frame.function()).starts_with(kTokioTurn); });
}

// Locks are told of with their queues, and a wait for a time ends.
bool Blocks(const Wait& wait) {
  if (wait.timed() || IsLockWait(wait.kind())) return false;
  switch (wait.kind()) {
    case Wait::KIND_UNSPECIFIED:
    case Wait::DISK:
    case Wait::STOP:
    case Wait::SYSTEM_CALL:
      return false;
    default:
      return true;
  }
}

bool IsOfStandardLibrary(const v1::Frame& frame) {
  const std::string_view file = frame.file();
  return file.starts_with("node:") || (file.find("/lib/python3") != file.npos && file.find("-packages/") == file.npos);
}

// The innermost function that the program brought in the loop's language; empty if none is known.
std::string PlaceOf(const v1::Stack& stack) {
  for (const v1::Frame& frame : stack.frames()) {
    const bool has_name = IsOfRuntime(frame) && !frame.function().empty();
    if (has_name && !IsOfStandardLibrary(frame)) return WaitScene::FrameInWords(frame);
  }
  return "";
}

// The callback that the thread waits in.
std::optional<LoopCallback> BlockedIn(const WaitScene& scene, const v1::Thread& thread) {
  const v1::Stack* stack = scene.StackOf(thread);
  if (stack == nullptr || thread.is_agent() || scene.IsExplained(thread.tid()) || !Blocks(thread.wait()))
    return std::nullopt;
  // Workers have loops too, and those of pools are blocked while they have nothing to do.
  if (IsInNode(*stack) && thread.tid() != scene.dump().process().pid()) return std::nullopt;
  return FindLoopCallback(*stack);
}

Finding Describe(const LoopCallback& callback, const v1::Thread& thread, WaitScene* scene) {
  const bool is_helpless =
      std::ranges::none_of(scene->dump().threads(), [scene](const v1::Thread& other) { return scene->MayAct(other); });
  const std::string inner = scene->Place(thread);
  const std::string& place = callback.place.empty() ? inner : callback.place;
  Finding finding;
  finding.set_kind(Finding::STARVED_POOL);
  finding.set_severity(is_helpless ? Finding::HANG : Finding::SUSPICIOUS);
  finding.set_explanation("the event loop of " + std::string(callback.loop) + " is blocked: " + scene->Name(thread.tid()) +
                          (place.empty() ? "" : " in " + place) + " " + thread.wait().explanation() +
                          " inside of a callback, and runs no other one meanwhile");
  if (inner != place) finding.add_details("it waits in " + inner);
  finding.add_tids(thread.tid());
  scene->SetExplained(thread.tid());
  return finding;
}

}  // namespace

std::optional<LoopCallback> FindLoopCallback(const v1::Stack& stack) {
  const std::string_view loop = IsInAsyncio(stack) ? "asyncio"
                                : IsInNode(stack)  ? "Node.js"
                                : IsInTokio(stack) ? "tokio"
                                                   : "";
  return loop.empty() ? std::nullopt : std::optional(LoopCallback{loop, PlaceOf(stack)});
}

void FindBlockedLoops(WaitScene* scene, std::vector<Finding>* findings) {
  for (const v1::Thread& thread : scene->dump().threads()) {
    if (const auto callback = BlockedIn(*scene, thread)) findings->push_back(Describe(*callback, thread, scene));
  }
}

}  // namespace stackd

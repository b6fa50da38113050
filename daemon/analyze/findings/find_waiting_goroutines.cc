#include "daemon/analyze/findings/find_waiting_goroutines.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "daemon/base/printable.h"

namespace stackd {
namespace {

using Finding = v1::Finding;

constexpr size_t kMaxPlaces = 5;
constexpr char kHowStuck[] = "none of the others is in a function that locks or unlocks (inferred from their code)";

bool IsForLock(const v1::Task& task) {
  constexpr std::string_view kReasons[] = {"sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock"};
  return task.state() == "waiting" && std::ranges::find(kReasons, task.wait_reason()) != std::end(kReasons);
}

bool HasWaitedLong(const v1::Task& task) { return task.wait_duration().seconds() >= 1; }

bool HasFunction(const v1::Stack* stack, std::string_view prefix) {
  return stack != nullptr &&
         std::ranges::any_of(stack->frames(), [&](const v1::Frame& frame) { return frame.function().starts_with(prefix); });
}

// The goroutine of the agent's package, which runs for the dump.
bool IsAgents(const v1::Stack* stack) { return HasFunction(stack, "stackd.example/go."); }

const v1::Stack* StackOf(const v1::Dump& dump, const v1::Task& task) {
  const bool has_stack = task.has_stack() && task.stack() >= 0 && task.stack() < dump.stacks_size();
  return has_stack ? &dump.stacks(task.stack()) : nullptr;
}

// The innermost function that is not of Go's locks: "main.transfer at bank.go:42"; empty if none is known.
std::string PlaceOf(const v1::Stack* stack) {
  constexpr std::string_view kLocks[] = {"sync.", "internal/sync.", "runtime."};
  if (stack == nullptr) return "";
  const auto frame = std::ranges::find_if(stack->frames(), [&](const v1::Frame& candidate) {
    return std::ranges::none_of(kLocks, [&](std::string_view lock) { return candidate.function().starts_with(lock); });
  });
  return frame == stack->frames().end() ? "" : WaitScene::FrameInWords(*frame);
}

// Threads may be at work where goroutines were seen before and after that.
bool SomeThreadRuns(const WaitScene& scene) {
  return std::ranges::any_of(scene.dump().threads(), [&](const v1::Thread& thread) {
    const v1::Stack* stack = scene.StackOf(thread);
    return thread.state() == "running" && !thread.is_agent() && !IsAgents(stack) && !HasFunction(stack, "runtime.sysmon");
  });
}

std::string GoroutinesInWords(size_t count, std::string_view verb) {
  return std::to_string(count) +
         (count == 1 ? " goroutine " + std::string(verb) + "s" : " goroutines " + std::string(verb));
}

}  // namespace

void FindWaitingGoroutines(const WaitScene& scene, std::vector<Finding>* findings) {
  std::map<std::string, size_t> places;
  size_t waiting = 0;
  bool is_long = false, runs = false;
  for (const v1::Task& task : scene.dump().tasks()) {
    const v1::Stack* stack = StackOf(scene.dump(), task);
    if (task.kind() != v1::Task::GOROUTINE || IsAgents(stack)) continue;
    runs = runs || task.state() != "waiting";
    if (!IsForLock(task)) continue;
    ++waiting;
    is_long = is_long || HasWaitedLong(task);
    const std::string place = PlaceOf(stack);
    ++places[(place.empty() ? "" : "in " + place + " ") + "(" + PrintableText(task.wait_reason()) + ")"];
  }
  const bool is_stuck = !scene.capture().managed.stuck_goroutines.empty();
  runs = runs || SomeThreadRuns(scene);
  if (waiting == 0 || (runs && !is_long && !is_stuck)) return;
  Finding& finding = findings->emplace_back();
  finding.set_kind(is_stuck ? Finding::DEADLOCK : Finding::OWNER_UNKNOWN);
  finding.set_severity(is_stuck ? Finding::HANG : Finding::SUSPICIOUS);
  if (is_stuck) {
    finding.set_explanation(GoroutinesInWords(waiting, "wait") + " for locks that no other goroutine has: " + kHowStuck);
    finding.add_details("the goroutine that has such a lock waits among them, or has ended without a call to Unlock");
  } else {
    finding.set_explanation(GoroutinesInWords(waiting, "wait") + " for a lock; owner unknown: Go's locks keep none");
    if (!runs) finding.add_details("no goroutine runs: the one that has the lock waits as well");
  }
  size_t told = 0;
  for (const auto& [place, count] : places) {
    if (told++ == kMaxPlaces) break;
    finding.add_details(GoroutinesInWords(count, "wait") + " " + place);
  }
}

}  // namespace stackd

#include "daemon/analyze/findings/find_class_circles.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/analyze/names/runtime_frame.h"
#include "daemon/analyze/waits/wait_function.h"

namespace stackd {
namespace {

using Finding = v1::Finding;

constexpr size_t kMaxDetails = 10;

// HotSpot's function that initializes a class: it runs the class's own code, or waits for the thread that does. As of
// OpenJDK 8 to 26.
constexpr std::string_view kInitialize = "InstanceKlass::initialize_impl";
constexpr std::string_view kClassCode = ".<clinit>";

struct Initializations {
  bool waits = false;      // for a class that another thread initializes
  bool has_begun = false;  // one itself
};

// Functions in which HotSpot waits, as of the same releases.
bool IsOfWait(const v1::Frame& frame) {
  constexpr std::string_view kWaits[] = {"Monitor", "PlatformEvent::park", "ObjectSynchronizer::", "ObjectLocker::"};
  return IsLibraryFrame(frame) || std::ranges::any_of(kWaits, [&](std::string_view name) {
           return frame.function().find(name) != std::string::npos;
         });
}

Initializations Look(const WaitScene& scene, const v1::Thread& thread) {
  const v1::Stack* stack = scene.StackOf(thread);
  Initializations found;
  if (stack == nullptr) return found;
  bool only_waits = thread.has_wait() && !thread.wait().timed();
  for (const v1::Frame& frame : stack->frames()) {
    const bool is_initialize = PlainFunctionOf(frame) == kInitialize;
    const bool is_class_code = IsOfRuntime(frame) && frame.function().ends_with(kClassCode);
    if (is_initialize && only_waits) {
      found.waits = true;
    } else if (is_initialize || is_class_code) {
      found.has_begun = true;
    }
    only_waits = only_waits && !is_initialize && IsOfWait(frame);
  }
  return found;
}

Finding Describe(const std::vector<const v1::Thread*>& circle, const std::vector<const v1::Thread*>& behind,
                 WaitScene* scene) {
  Finding finding;
  finding.set_kind(Finding::DEADLOCK);
  finding.set_severity(Finding::HANG);
  std::string text =
      ThreadsInWords(circle.size()) + " wait in initializers of classes for classes that others of them initialize: ";
  for (size_t i = 0; i < circle.size() && i < kMaxDetails; ++i) text += (i > 0 ? ", " : "") + scene->Name(circle[i]->tid());
  finding.set_explanation(text + " (inferred from the stacks)");
  for (const v1::Thread* thread : circle) {
    finding.add_tids(thread->tid());
    scene->SetExplained(thread->tid());
    if (std::cmp_less(finding.details_size(), kMaxDetails)) {
      finding.add_details(scene->NameAndPlace(*thread) + " waits until another thread has initialized a class");
    }
  }
  if (!behind.empty()) finding.add_details(MoreWaitInWords(behind.size()) + " for classes that these initialize");
  for (const v1::Thread* thread : behind) {
    finding.add_tids(thread->tid());
    scene->SetExplained(thread->tid());
  }
  // Two wait for each other. One of more may wait for the circle of others.
  for (size_t i = 0; circle.size() == 2 && i < 2; ++i) {
    Finding::Edge& edge = *finding.add_edges();
    edge.set_waiter_tid(circle[i]->tid());
    edge.set_owner_tid(circle[1 - i]->tid());
    edge.set_lock("a class that is being initialized");
    edge.set_kind(v1::Wait::ONCE);
  }
  return finding;
}

}  // namespace

void FindClassCircles(WaitScene* scene, std::vector<Finding>* findings) {
  std::vector<const v1::Thread*> circle, behind;
  for (const v1::Thread& thread : scene->dump().threads()) {
    const Initializations found = Look(*scene, thread);
    // It may come to the end of its initializer.
    if (found.has_begun && !found.waits) return;
    if (found.waits) (found.has_begun ? circle : behind).push_back(&thread);
  }
  // Each waits for one that has begun, and they all wait.
  if (circle.size() >= 2) findings->push_back(Describe(circle, behind, scene));
}

}  // namespace stackd

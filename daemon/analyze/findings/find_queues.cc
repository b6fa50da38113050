#include "daemon/analyze/findings/find_queues.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "daemon/analyze/waits/file_lock_owner.h"
#include "daemon/analyze/waits/wait_words.h"
#include "daemon/base/clock.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

// So many waiters for one lock are a queue, whatever its owner does. Fewer are what locks are for.
constexpr size_t kConvoy = 3;
// Threads that compute in one interpreter take turns with its GIL, so that all but one always wait for it.
constexpr size_t kGilConvoy = 8;
// A wait that lasts so long is told, whatever the owner does.
constexpr int64_t kLongSeconds = 1;

// Ways out that no dump shows, so that such a cycle is not certain.
constexpr char kOtherWaysToUnlock[] =
    "a process that shares the open file could unlock it, and a signal could end the wait";

// Limit for a chain of owners that wait for owners: the work grows with the square of what a hostile process claims.
constexpr int kMaxChain = 64;

struct Queue {
  std::vector<const v1::Thread*> waiters;  // for the lock itself
  std::vector<const v1::Thread*> behind;   // that wait for locks of the waiters
};

// Queues by what tells locks apart: the address, else the kind and the place in the code.
using Queues = std::map<std::string, Queue>;

std::string LockKey(WaitScene* scene, const v1::Thread& thread) {
  const Wait& wait = thread.wait();
  if (!wait.address().empty()) return wait.address();
  return std::to_string(wait.kind()) + " " + scene->Place(thread);
}

// A condition variable that a thread destroys: the thread waits for those that wait on it.
bool IsToBeDestroyed(const Wait& wait) {
  return wait.kind() == Wait::CONDITION_VARIABLE && wait.owner() == Wait::NOT_RECORDED;
}

bool IsQueued(const WaitScene& scene, const v1::Thread& thread) {
  if (!thread.has_wait() || scene.IsExplained(thread.tid())) return false;
  return IsLockWait(thread.wait().kind()) || IsToBeDestroyed(thread.wait());
}

// A thread that waits for a lock whose owner is known.
bool LeadsOn(const WaitScene& scene, const v1::Thread* thread) {
  return thread != nullptr && IsQueued(scene, *thread) && thread->wait().owner() == Wait::KNOWN;
}

// Whether the thread is in a call that ends by itself, sooner or later.
bool IsInCall(const Wait& wait) {
  const bool uses_file = wait.kind() == Wait::READ || wait.kind() == Wait::WRITE;
  return wait.kind() == Wait::SYSTEM_CALL || (uses_file && wait.fds_size() == 1 && wait.fds(0).name().starts_with('/'));
}

// Whether the thread runs, or is about to: out of a call that wakes others, or with a lock that was free.
bool IsAwake(const v1::Thread& thread) {
  if (!thread.has_wait() || thread.wait().kind() == Wait::SYSTEM_CALL) return true;
  return IsLockWait(thread.wait().kind()) && thread.wait().owner() == Wait::NONE;
}

bool IsLong(const Queue& queue) {
  return std::ranges::any_of(queue.waiters, [](const v1::Thread* thread) {
    return thread->wait().has_duration() && thread->wait().duration().seconds() >= kLongSeconds;
  });
}

class QueueTeller {
 public:
  QueueTeller(WaitScene* scene, const Queue& queue) : scene_(*scene), queue_(queue), wait_(queue.waiters[0]->wait()) {}

  // nullopt: nothing to say.
  std::optional<Finding> Tell() {
    switch (wait_.owner()) {
      case Wait::GONE:
        return Abandoned();
      case Wait::KNOWN:
        return Owned();
      case Wait::NOT_RECORDED:
        // malloc's locks are taken and released all the time, and any lock is by a thread that runs.
        if (IsWorthAWord()) return Unknown();
        return wait_.kind() != Wait::INTERNAL_LOCK && !SomeThreadRuns() ? std::optional(Unknown()) : std::nullopt;
      case Wait::OTHER_PROCESS:
        return Unknown();
      case Wait::NOT_KNOWN:
        return IsRefused(wait_) ? Refused() : Unknown();
      default:
        return std::nullopt;
    }
  }

  // nullopt: nothing to say.
  std::optional<Finding> TellFileLock() {
    const ThreadCapture* captured = scene_.FindCaptured(queue_.waiters[0]->tid());
    const FileLock* lock = captured == nullptr ? nullptr : FindFileLock(scene_.capture(), *captured);
    const bool is_cycle = lock != nullptr && !lock->cycle.empty();
    if (lock != nullptr && !is_cycle && HolderRuns(*lock) && !IsWorthAWord()) return std::nullopt;
    std::string text = Subject() + "a file lock";
    if (wait_.fds_size() > 0 && !wait_.fds(0).name().empty()) text += " of " + wait_.fds(0).name();
    text +=
        wait_.owner_note().empty() ? "; who has it, this process cannot tell (see /proc/locks)" : "; " + wait_.owner_note();
    Finding finding = Start(Finding::OWNER_UNKNOWN, Finding::SUSPICIOUS, std::move(text));
    if (is_cycle) {
      finding.set_kind(Finding::DEADLOCK);
      finding.add_details("no wait of this circle of processes ends by itself, as far as can be seen");
      finding.add_details(kOtherWaysToUnlock);
    } else if (lock != nullptr && IsItsOnlyThread(*lock)) {
      finding.set_kind(Finding::SELF_DEADLOCK);
      finding.add_details("the process has no other thread that could unlock it");
      finding.add_details(kOtherWaysToUnlock);
    }
    AddWaiters(&finding);
    return finding;
  }

 private:
  size_t size() const { return queue_.waiters.size() + queue_.behind.size(); }
  bool IsWorthAWord() const { return size() >= kConvoy || IsLong(queue_); }

  // Whether the process that has a file lock is at work, as far as can be seen.
  bool HolderRuns(const FileLock& lock) const {
    if (!lock.is_own) return lock.runs && lock.still_holds != StillHolds::kNo;
    return SomeThreadRuns();
  }

  bool SomeThreadRuns() const {
    return std::ranges::any_of(scene_.dump().threads(), [](const v1::Thread& thread) {
      return !thread.is_agent() && thread.status() != v1::Thread::EXITED && IsAwake(thread);
    });
  }

  // Whether the thread that waits is the only one of the process that has the file lock.
  bool IsItsOnlyThread(const FileLock& lock) const {
    if (!lock.is_own || lock.still_holds != StillHolds::kYes) return false;
    const auto is_programs = [](const v1::Thread& thread) {
      return !thread.is_agent() && thread.status() != v1::Thread::EXITED;
    };
    return std::ranges::count_if(scene_.dump().threads(), is_programs) == 1;
  }

  // "thread a (tid 1) in F at f.cc:3 waits", "512 threads wait"
  std::string Subject() {
    if (queue_.waiters.size() == 1) return scene_.NameAndPlace(*queue_.waiters[0]) + " waits for ";
    return ThreadsInWords(queue_.waiters.size()) + " wait for ";
  }

  Finding Start(Finding::Kind kind, Finding::Severity severity, std::string explanation) {
    Finding finding;
    finding.set_kind(kind);
    finding.set_severity(severity);
    finding.set_explanation(std::move(explanation));
    return finding;
  }

  bool AnyWaits(Wait::Kind kind) const {
    return std::ranges::any_of(queue_.waiters, [kind](const v1::Thread* thread) { return thread->wait().kind() == kind; });
  }

  bool AllTimed() const {
    return std::ranges::all_of(queue_.waiters, [](const v1::Thread* thread) { return thread->wait().timed(); });
  }

  void AddWaiters(Finding* finding) {
    for (const v1::Thread* thread : queue_.waiters) {
      finding->add_tids(thread->tid());
      scene_.SetExplained(thread->tid());
    }
    if (!queue_.behind.empty()) {
      finding->add_details(MoreWaitInWords(queue_.behind.size()) + " for locks that these hold");
    }
    for (const v1::Thread* thread : queue_.behind) {
      finding->add_tids(thread->tid());
      scene_.SetExplained(thread->tid());
    }
    AddPlaces(finding);
  }

  // Where the waiters are, most first.
  void AddPlaces(Finding* finding) {
    constexpr size_t kMaxPlaces = 5;
    if (queue_.waiters.size() < 2) return;
    std::map<std::string, size_t> count;
    for (const v1::Thread* thread : queue_.waiters) ++count[scene_.Place(*thread)];
    count.erase("");
    std::vector<std::pair<size_t, std::string>> places;
    for (const auto& [place, threads] : count) places.emplace_back(threads, place);
    std::ranges::sort(places, std::greater());
    for (size_t i = 0; i < places.size() && i < kMaxPlaces; ++i) {
      finding->add_details(ThreadsInWords(places[i].first) + (places[i].first == 1 ? " waits" : " wait") + " in " +
                           places[i].second);
    }
  }

  Finding Abandoned() {
    // A thread that was started after the others had been listed has a higher tid.
    const bool may_be_new = std::ranges::none_of(
        scene_.dump().threads(), [&](const v1::Thread& thread) { return thread.tid() > wait_.owner_tid(); });
    Finding finding = Start(Finding::ABANDONED_LOCK, AllTimed() || may_be_new ? Finding::SUSPICIOUS : Finding::HANG,
                            Subject() + WaitedThing(wait_) + ", which nobody will release: " + wait_.owner_note());
    if (may_be_new) finding.add_details("unless thread " + std::to_string(wait_.owner_tid()) + " began during the dump");
    AddWaiters(&finding);
    return finding;
  }

  std::optional<Finding> Owned() {
    const v1::Thread* owner = scene_.Find(wait_.owner_tid());
    if (owner == nullptr) return std::nullopt;
    const bool runs = !owner->has_wait();
    const bool in_call = IsInCall(owner->wait());
    if ((runs || in_call) && !IsWorthAWord()) return std::nullopt;
    std::string text = Subject() + WaitedThing(wait_) + HeldBy(wait_) + scene_.NameAndPlace(*owner) + ", which ";
    if (!runs) {
      text += owner->wait().explanation();
    } else {
      text += ActivityOf(*owner);
    }
    const bool is_convoy = (runs || in_call) && size() >= kConvoy;
    const bool take_turns = runs && wait_.kind() == Wait::GIL && size() < kGilConvoy;
    Finding finding = Start(is_convoy ? Finding::LOCK_CONVOY : Finding::OWNER_BLOCKED,
                            take_turns ? Finding::HARMLESS : Finding::SUSPICIOUS, std::move(text));
    finding.add_tids(owner->tid());
    if (owner->has_wait()) scene_.SetExplained(owner->tid());
    if (!wait_.owner_note().empty()) finding.add_details("the owner is " + wait_.owner_note());
    AddWaiters(&finding);
    return finding;
  }

  // Says what a thread does that is in no known wait.
  std::string ActivityOf(const v1::Thread& owner) const {
    const ThreadCapture* captured = scene_.FindCaptured(owner.tid());
    if (captured != nullptr && captured->unmoved_ns >= kLongSeconds * kNsPerSecond) {
      const std::string time = std::to_string(captured->unmoved_ns / kNsPerSecond) + " s";
      return "has not run for " + time + " (it waits for a page of its memory, or for a core)";
    }
    if (owner.state() == "running") return "runs";
    if (owner.state().starts_with("in a system call") || owner.state().starts_with("asleep")) return "is " + owner.state();
    return "is not waiting (" + owner.state() + ")";
  }

  Finding Unknown() {
    Finding finding =
        Start(Finding::OWNER_UNKNOWN, Finding::SUSPICIOUS, Subject() + WaitedThing(wait_) + "; " + wait_.owner_note());
    if (wait_.owner() == Wait::NOT_RECORDED && AnyWaits(Wait::RWLOCK_WRITE)) {
      finding.add_details("a thread that has it to read and asks to write waits for itself");
      if (AnyWaits(Wait::RWLOCK_READ))
        finding.add_details("one that has it to read and asks again waits behind the writer");
    }
    AddWaiters(&finding);
    return finding;
  }

  Finding Refused() {
    Finding finding =
        Start(Finding::OWNER_BLOCKED, Finding::HANG, scene_.NameAndPlace(*queue_.waiters[0]) + " " + wait_.explanation());
    AddWaiters(&finding);
    return finding;
  }

  WaitScene& scene_;
  const Queue& queue_;
  const Wait& wait_;
};

// Finds waits for file locks that no queue has explained.
void FindFileLocks(WaitScene* scene, std::vector<Finding>* findings) {
  std::map<std::string, Queue> queues;  // by file and owner
  for (const v1::Thread& thread : scene->dump().threads()) {
    const Wait& wait = thread.wait();
    if (wait.kind() != Wait::FILE_LOCK || scene->IsExplained(thread.tid())) continue;
    queues[(wait.fds_size() > 0 ? wait.fds(0).name() : "") + "; " + wait.owner_note()].waiters.push_back(&thread);
  }
  for (const auto& [file, queue] : queues) {
    if (auto finding = QueueTeller(scene, queue).TellFileLock()) findings->push_back(*std::move(finding));
  }
}

}  // namespace

void FindQueues(WaitScene* scene, std::vector<Finding>* findings) {
  Queues queues;
  for (const v1::Thread& thread : scene->dump().threads()) {
    if (IsQueued(*scene, thread)) queues[LockKey(scene, thread)].waiters.push_back(&thread);
  }
  // A queue whose owner waits in another one is told with that.
  std::vector<const Queue*> roots;
  for (auto& [key, queue] : queues) {
    const v1::Thread& first = *queue.waiters[0];
    const v1::Thread* owner = first.wait().owner() == Wait::KNOWN ? scene->Find(first.wait().owner_tid()) : nullptr;
    if (owner == nullptr || !IsQueued(*scene, *owner)) {
      roots.push_back(&queue);
      continue;
    }
    const v1::Thread* last = owner;
    for (int steps = 0; steps < kMaxChain; ++steps) {
      const v1::Thread* next = LeadsOn(*scene, last) ? scene->Find(last->wait().owner_tid()) : nullptr;
      if (next == nullptr || !IsQueued(*scene, *next)) break;
      last = next;
    }
    auto& behind = queues[LockKey(scene, *last)].behind;
    behind.insert(behind.end(), queue.waiters.begin(), queue.waiters.end());
  }
  std::ranges::stable_sort(roots, std::greater(),
                           [](const Queue* queue) { return queue->waiters.size() + queue->behind.size(); });
  for (const Queue* queue : roots) {
    if (auto finding = QueueTeller(scene, *queue).Tell()) findings->push_back(*std::move(finding));
  }
  FindFileLocks(scene, findings);
}

}  // namespace stackd

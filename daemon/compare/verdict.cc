#include "daemon/compare/verdict.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "daemon/analyze/findings/find_blocked_loops.h"
#include "daemon/compare/words.h"
#include "daemon/export/wording.h"

namespace stackd {
namespace {

using Comparison = v1::DumpComparison;

// Share of a core that a thread uses which does nothing but run.
constexpr double kWholeCore = 0.8;
// Likewise for a thread without a core of its own: too many threads want one, or a limit keeps them from it.
constexpr double kCrowdedCore = 0.2;
// Likewise for two threads that hinder each other: part of the time they wait for each other.
constexpr double kLivelockCore = 0.1;
// A thread that goes round in one function is not deeper in calls of it than this.
constexpr size_t kFewFunctions = 3;
// A thread that used no more looks at a clock or a queue now and then.
constexpr double kIdleCore = 0.01;

bool IsLock(v1::Wait::Kind kind) {
  switch (kind) {
    case v1::Wait::MUTEX:
    case v1::Wait::RWLOCK_READ:
    case v1::Wait::RWLOCK_WRITE:
    case v1::Wait::ONCE:
    case v1::Wait::INTERNAL_LOCK:
    case v1::Wait::FILE_LOCK:
    case v1::Wait::GIL:
    case v1::Wait::MONITOR:
      return true;
    default:
      return false;
  }
}

// What ends such a wait is not known.
bool IsUnknown(const v1::Wait& wait) {
  const v1::Wait::Kind kind = wait.kind();
  return kind == v1::Wait::KIND_UNSPECIFIED || kind == v1::Wait::FUTEX || kind == v1::Wait::SYSTEM_CALL ||
         (wait.owner() == v1::Wait::OTHER_PROCESS && !IsLock(kind));
}

// While all is well no thread waits for these for long.
bool ShouldEndSoon(v1::Wait::Kind kind) {
  return kind == v1::Wait::WRITE || kind == v1::Wait::CONNECT || kind == v1::Wait::DISK || kind == v1::Wait::STOP;
}

bool StaysInFewFunctions(const ThreadProgress& thread) {
  return thread.common_functions > 0 && thread.inner_functions <= kFewFunctions;
}

bool Spins(const ThreadProgress& thread) {
  if (!thread.has_both_stacks() || IsOwnThread(thread)) return false;
  const bool busy = thread.core_share >= kWholeCore || (thread.always_running && thread.core_share >= kCrowdedCore);
  const bool stays = thread.difference != StackDifference::kFunctions || (thread.retries && StaysInFewFunctions(thread));
  return busy && stays;
}

bool TriesAgainAndAgain(const ThreadProgress& thread) {
  return thread.has_both_stacks() && !IsOwnThread(thread) && thread.retries && StaysInFewFunctions(thread) &&
         thread.core_share >= kLivelockCore;
}

std::string LoopInWords(const ThreadProgress& thread, int64_t between_ns) {
  return ThreadInWords(*thread.after) + " used " + ShareInWords(thread.core_share) + " for " + TimeInWords(between_ns) +
         " and did not leave " + KeptFunctionInWords(thread);
}

v1::Finding Spinning(const ThreadProgress& thread, int64_t between_ns) {
  v1::Finding finding;
  finding.set_kind(v1::Finding::SPINNING);
  finding.set_severity(v1::Finding::SUSPICIOUS);
  finding.set_explanation(LoopInWords(thread, between_ns));
  finding.add_tids(thread.tid);
  if (const auto callback = FindLoopCallback(*thread.stack_after)) {
    finding.add_details("the event loop of " + std::string(callback->loop) + " runs no other callback meanwhile" +
                        (callback->place.empty() ? "" : ": it is in " + callback->place));
  }
  if (thread.core_share < kWholeCore) finding.add_details("it was running in each dump, without a core of its own");
  return finding;
}

v1::Finding Livelock(const std::vector<const ThreadProgress*>& threads, int64_t between_ns) {
  v1::Finding finding;
  finding.set_kind(v1::Finding::LIVELOCK);
  finding.set_severity(v1::Finding::SUSPICIOUS);
  finding.set_explanation(Count(std::ssize(threads), "thread") + " run and try again and again for " +
                          TimeInWords(between_ns) + ", and none leaves its function: they may hinder each other");
  for (const ThreadProgress* thread : threads) {
    finding.add_tids(thread->tid);
    finding.add_details(LoopInWords(*thread, between_ns));
  }
  return finding;
}

// What a dump itself says of its threads.
struct Found {
  std::set<int32_t> deadlocked;  // each waits for another of them, or for itself
  std::set<int32_t> hung;        // in any other way, or with its pool or loop
  std::set<int32_t> idle;
};

Found FoundIn(const v1::Dump& dump) {
  Found found{.deadlocked = ThreadsInCycles(dump)};
  for (const v1::Finding& finding : dump.findings()) {
    if (IsDeadlock(finding)) continue;
    if (finding.severity() == v1::Finding::HANG || finding.kind() == v1::Finding::STARVED_POOL) {
      found.hung.insert(finding.tids().begin(), finding.tids().end());
    } else if (finding.kind() == v1::Finding::IDLE) {
      found.idle.insert(finding.tids().begin(), finding.tids().end());
    }
  }
  return found;
}

class Judge {
 public:
  Judge(const v1::Dump& before, const v1::Dump& after, const std::vector<v1::Finding>& loops,
        std::vector<ThreadProgress> threads)
      : before_(FoundIn(before)), after_(FoundIn(after)) {
    for (const v1::Finding& finding : loops) looping_.insert(finding.tids().begin(), finding.tids().end());
    threads_.reserve(threads.size());
    for (ThreadProgress& thread : threads) threads_.push_back({std::move(thread)});
    for (JudgedThread& thread : threads_) by_tid_.emplace(thread.progress.tid, &thread);
  }

  std::vector<JudgedThread> Run() {
    for (JudgedThread& thread : threads_) thread.verdict = Alone(thread.progress);
    std::set<int32_t> waited_for;
    for (JudgedThread& thread : threads_) {
      const JudgedThread* owner = OwnerOf(thread.progress);
      if (owner != nullptr && IsLock(thread.progress.after->wait().kind())) waited_for.insert(owner->progress.tid);
    }
    for (int32_t tid : waited_for) {
      JudgedThread* owner = by_tid_.at(tid);
      if (owner->verdict == Comparison::WORKING) owner->verdict = Comparison::SLOW;
    }
    for (JudgedThread& thread : threads_) {
      if (IsHeldUp(thread)) FollowOwners(&thread);
    }
    return std::move(threads_);
  }

 private:
  // Judges a thread by what is known of it alone.
  Comparison::Verdict Alone(const ThreadProgress& thread) const {
    const auto in_both = [&](const std::set<int32_t>& first, const std::set<int32_t>& second) {
      return first.contains(thread.tid) && second.contains(thread.tid);
    };
    if (IsOwnThread(thread)) return Comparison::IDLE;
    if (thread.before == nullptr || thread.after == nullptr) return Comparison::VERDICT_UNSPECIFIED;
    if (in_both(before_.deadlocked, after_.deadlocked) && !thread.ran()) return Comparison::DEADLOCKED;
    if (looping_.contains(thread.tid)) return Comparison::SPINNING;
    if (!thread.has_both_stacks()) return WithoutStack(thread);
    const bool waits = thread.after->has_wait();
    if (thread.ran() && !AsksAgain(thread))
      return waits && IsLock(thread.after->wait().kind()) ? Comparison::SLOW : Running(thread);
    if (in_both(before_.hung, after_.hung)) return Comparison::STUCK;
    if (in_both(before_.idle, after_.idle)) return Comparison::IDLE;
    const v1::Wait::Kind kind = thread.after->wait().kind();
    if (IsUnknown(thread.after->wait())) return Comparison::VERDICT_UNSPECIFIED;
    return IsLock(kind) || ShouldEndSoon(kind) ? Comparison::STUCK : Comparison::IDLE;
  }

  static Comparison::Verdict WithoutStack(const ThreadProgress& thread) {
    const v1::Thread &before = *thread.before, &after = *thread.after;
    const bool cannot_move = before.status() == v1::Thread::STOPPED || before.status() == v1::Thread::UNINTERRUPTIBLE;
    const bool same = before.status() == after.status() && before.wait_channel() == after.wait_channel();
    return cannot_move && same ? Comparison::STUCK : Comparison::VERDICT_UNSPECIFIED;
  }

  static Comparison::Verdict Running(const ThreadProgress& thread) {
    const bool looked_only = thread.change() == Comparison::SAME_FRAMES && WaitsForTheSame(thread) &&
                             thread.cpu_ns.has_value() && thread.core_share < kIdleCore;
    return looked_only ? Comparison::IDLE : Comparison::WORKING;
  }

  // The thread that must act for it to go on; nullptr if that is not known.
  JudgedThread* OwnerOf(const ThreadProgress& thread) const {
    if (thread.after == nullptr || thread.after->wait().owner() != v1::Wait::KNOWN) return nullptr;
    const auto owner = by_tid_.find(thread.after->wait().owner_tid());
    return owner == by_tid_.end() || owner->second->progress.tid == thread.tid ? nullptr : owner->second;
  }

  // A waiter for the GIL wakes every few milliseconds to ask for it, and has not moved by that.
  bool AsksAgain(const ThreadProgress& thread) const {
    if (!thread.has_both_stacks() || thread.after->wait().kind() != v1::Wait::GIL || !WaitsForTheSame(thread)) return false;
    const JudgedThread* owner = OwnerOf(thread);
    return owner != nullptr && thread.before->wait().owner_tid() == owner->progress.tid && !owner->progress.ran();
  }

  // It has not run, waits for a thread, and no finding says why.
  bool IsHeldUp(const JudgedThread& thread) const {
    const ThreadProgress& progress = thread.progress;
    return progress.has_both_stacks() && (!progress.ran() || AsksAgain(progress)) && OwnerOf(progress) != nullptr &&
           thread.verdict != Comparison::DEADLOCKED &&
           !(before_.hung.contains(progress.tid) && after_.hung.contains(progress.tid));
  }

  // The lock that it waits for went from hand to hand.
  static bool LockMoved(const ThreadProgress& thread) {
    const v1::Wait &before = thread.before->wait(), &after = thread.after->wait();
    return WaitsForTheSame(thread) && before.owner() == v1::Wait::KNOWN && before.owner_tid() != after.owner_tid();
  }

  // Walks from owner to owner to a thread that no other holds up: what holds for that one decides for all on the way.
  void FollowOwners(JudgedThread* first) {
    std::vector<JudgedThread*> way;
    JudgedThread* thread = first;
    while (IsHeldUp(*thread) && !LockMoved(thread->progress) && followed_.insert(thread->progress.tid).second) {
      way.push_back(thread);
      thread = OwnerOf(thread->progress);
    }
    // The walk met a thread that was judged, or came back to its begin: in a cycle no thread moves.
    bool moves = LockMoves(*thread), hangs = Hangs(*thread);
    for (auto at = way.rbegin(); at != way.rend(); ++at) {
      JudgedThread* held_up = *at;
      const bool for_lock = IsLock(held_up->progress.after->wait().kind());
      held_up->verdict = moves && for_lock ? Comparison::SLOW : for_lock || hangs ? Comparison::STUCK : Comparison::IDLE;
      moves = held_up->verdict == Comparison::SLOW;
      hangs = held_up->verdict == Comparison::STUCK;
    }
    if (way.empty() && LockMoved(first->progress)) first->verdict = Comparison::SLOW;
  }

  static bool LockMoves(const JudgedThread& owner) {
    if (owner.verdict == Comparison::SPINNING || owner.verdict == Comparison::DEADLOCKED) return false;
    const bool held = owner.progress.has_both_stacks() && owner.progress.after->has_wait();
    return owner.progress.ran() || owner.verdict == Comparison::SLOW || (held && LockMoved(owner.progress));
  }

  // A spinning thread does not count: it may be at work for those that wait for its end.
  static bool Hangs(const JudgedThread& owner) {
    return owner.verdict == Comparison::STUCK || owner.verdict == Comparison::DEADLOCKED;
  }

  const Found before_, after_;
  std::set<int32_t> looping_;
  std::vector<JudgedThread> threads_;
  std::unordered_map<int32_t, JudgedThread*> by_tid_;
  std::set<int32_t> followed_;
};

}  // namespace

std::vector<v1::Finding> FindLoops(const std::vector<ThreadProgress>& threads, int64_t between_ns) {
  std::vector<const ThreadProgress*> retrying;
  for (const ThreadProgress& thread : threads) {
    if (TriesAgainAndAgain(thread)) retrying.push_back(&thread);
  }
  if (retrying.size() == 1) retrying.clear();
  std::vector<v1::Finding> findings;
  if (!retrying.empty()) findings.push_back(Livelock(retrying, between_ns));
  for (const ThreadProgress& thread : threads) {
    if (Spins(thread) && std::ranges::find(retrying, &thread) == retrying.end()) {
      findings.push_back(Spinning(thread, between_ns));
    }
  }
  return findings;
}

std::vector<JudgedThread> JudgeThreads(const v1::Dump& before, const v1::Dump& after, const std::vector<v1::Finding>& loops,
                                       std::vector<ThreadProgress> threads) {
  return Judge(before, after, loops, std::move(threads)).Run();
}

v1::DumpComparison::Verdict JudgeProcess(const std::vector<JudgedThread>& threads) {
  Comparison::Verdict worst = Comparison::VERDICT_UNSPECIFIED;
  for (const JudgedThread& thread : threads) {
    if (IsOwnThread(thread.progress)) continue;
    const Comparison::Change change = thread.progress.change();
    const bool came_or_went = change == Comparison::STARTED || change == Comparison::ENDED;
    const Comparison::Verdict verdict = came_or_went ? Comparison::WORKING : thread.verdict;
    if (RankOf(verdict) < RankOf(worst)) worst = verdict;
  }
  return worst;
}

int RankOf(v1::DumpComparison::Verdict verdict) {
  switch (verdict) {
    case Comparison::DEADLOCKED:
      return 0;
    case Comparison::SPINNING:
      return 1;
    case Comparison::STUCK:
      return 2;
    case Comparison::SLOW:
      return 3;
    case Comparison::WORKING:
      return 4;
    case Comparison::IDLE:
      return 5;
    default:
      return 6;
  }
}

bool IsOwnThread(const ThreadProgress& thread) {
  const v1::Stack* stack = thread.stack_after != nullptr ? thread.stack_after : thread.stack_before;
  if (stack == nullptr) return false;
  return std::ranges::any_of(stack->frames(), [](const v1::Frame& frame) { return frame.function() == "stackd_dump_run"; });
}

bool WaitsForTheSame(const ThreadProgress& thread) {
  const v1::Wait &before = thread.before->wait(), &after = thread.after->wait();
  return thread.before->has_wait() && thread.after->has_wait() && before.kind() == after.kind() &&
         before.address() == after.address();
}

}  // namespace stackd

#include "daemon/analyze/waits/reused_tid.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>

#include "daemon/analyze/waits/wait_words.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

// Who waits longest for such a lock gets it next. A writer may go before readers that wait for an rwlock.
bool IsFirstComeFirstServed(const Wait& wait) { return wait.kind() == Wait::MUTEX || wait.kind() == Wait::INTERNAL_LOCK; }

bool HasOwnerByTid(const v1::Thread& thread) {
  return thread.has_wait() && IsFirstComeFirstServed(thread.wait()) && thread.wait().owner() == Wait::KNOWN;
}

}  // namespace

void DropReusedOwners(const Capture& capture, v1::Dump* dump) {
  std::unordered_map<int32_t, const ThreadCapture*> captured;
  for (const ThreadCapture& thread : capture.threads) captured.emplace(thread.tid, &thread);
  std::set<std::string> addresses;
  for (const v1::Thread& thread : dump->threads()) {
    if (!HasOwnerByTid(thread)) continue;
    const auto waiter = captured.find(thread.tid()), owner = captured.find(thread.wait().owner_tid());
    if (waiter == captured.end() || owner == captured.end()) continue;
    const int64_t absent_ns = owner->second->absent_ns;
    if (absent_ns >= 0 && waiter->second->unmoved_ns >= absent_ns) addresses.insert(thread.wait().address());
  }
  for (v1::Thread& thread : *dump->mutable_threads()) {
    if (!HasOwnerByTid(thread) || !addresses.contains(thread.wait().address())) continue;
    const auto owner = std::ranges::find(dump->threads(), thread.wait().owner_tid(), &v1::Thread::tid);
    if (owner == dump->threads().end()) continue;
    Wait& wait = *thread.mutable_wait();
    wait.set_owner(Wait::NOT_KNOWN);
    wait.set_owner_note("owner unknown: it names " + ThreadWithTid(*owner, dump->process().pid()) +
                        ", which began when another thread waited for it already: the number was used again, or that "
                        "thread came before those that wait");
    wait.clear_owner_tid();
  }
}

}  // namespace stackd

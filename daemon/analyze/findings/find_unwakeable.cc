#include "daemon/analyze/findings/find_unwakeable.h"

#include <algorithm>
#include <string>

#include "daemon/analyze/waits/wait_words.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

// Waits for one certain result. Those that may as well be for work are not told from idling.
bool IsForResult(const Wait& wait) {
  return wait.kind() == Wait::FUTURE || IsLockWait(wait.kind()) || wait.owner() == Wait::NOT_RECORDED;
}

// Whether the lock was free. A waiter may then be waking up: a lock is free for a moment each time that it is passed on.
bool WasFree(const Wait& wait) { return IsLockWait(wait.kind()) && wait.owner() == Wait::NONE; }

// A lock that was free for a second is not being passed on.
bool IsAboutToGoOn(const Wait& wait) { return WasFree(wait) && wait.duration().seconds() < 1; }

bool IsUntold(const WaitScene& scene, const v1::Thread& thread) {
  return thread.has_wait() && !scene.IsExplained(thread.tid());
}

Finding Describe(WaitScene* scene, const v1::Thread& first, Finding::Severity severity) {
  constexpr int kMaxDetails = 5;
  Finding finding;
  finding.set_kind(Finding::NOBODY_TO_WAKE);
  finding.set_severity(severity);
  finding.set_explanation(scene->NameAndPlace(first) + " " + first.wait().explanation() +
                          ", and no thread of the process runs or will be woken from outside: nobody is left to wake it, "
                          "as far as can be seen");
  finding.add_tids(first.tid());
  for (const v1::Thread& thread : scene->dump().threads()) {
    if (thread.tid() == first.tid() || !IsUntold(*scene, thread)) continue;
    finding.add_tids(thread.tid());
    if (finding.details_size() < kMaxDetails) {
      finding.add_details(scene->NameAndPlace(thread) + " " + thread.wait().explanation());
    }
  }
  scene->SetExplained(first.tid());
  return finding;
}

const WaitedFd* FindFd(const Capture& capture, int32_t fd) {
  const auto found = std::ranges::find(capture.fds, fd, &WaitedFd::fd);
  return found == capture.fds.end() ? nullptr : &*found;
}

// The one fd that a thread reads or writes, if it is a pipe whose other end is open in the same process.
const WaitedFd* OwnPipe(const WaitScene& scene, const v1::Thread& thread) {
  const Wait& wait = thread.wait();
  if ((wait.kind() != Wait::WRITE && wait.kind() != Wait::READ) || wait.fds_size() != 1) return nullptr;
  const WaitedFd* fd = FindFd(scene.capture(), wait.fds(0).fd());
  return fd != nullptr && fd->other_end >= 0 ? fd : nullptr;
}

Finding DescribePipe(WaitScene* scene, const v1::Thread& thread, const WaitedFd& pipe) {
  const bool writes = thread.wait().kind() == Wait::WRITE;
  Finding finding;
  finding.set_kind(Finding::NOBODY_TO_WAKE);
  finding.set_severity(Finding::SUSPICIOUS);
  finding.set_explanation(scene->NameAndPlace(thread) + " " + thread.wait().explanation() + ", which is " +
                          (writes ? "full" : "empty") + "; its other end is fd " + std::to_string(pipe.other_end) +
                          " of this process, where no thread is left to " + (writes ? "read" : "write") +
                          ", as far as can be seen");
  finding.add_details("another process may have the other end as well");
  finding.add_tids(thread.tid());
  scene->SetExplained(thread.tid());
  return finding;
}

}  // namespace

void FindUnwakeable(WaitScene* scene, std::vector<Finding>* findings) {
  const v1::Dump& dump = scene->dump();
  // A thread that waits for its own pipe could act, if only another one did.
  std::vector<const v1::Thread*> at_pipes;
  const v1::Thread* for_result = nullptr;
  bool may_go_on = false;
  for (const v1::Thread& thread : dump.threads()) {
    if (OwnPipe(*scene, thread) != nullptr) {
      at_pipes.push_back(&thread);
    } else if (scene->MayAct(thread) || IsAboutToGoOn(thread.wait())) {
      return;
    }
    may_go_on = may_go_on || thread.wait().kind() == Wait::SIGNAL || WasFree(thread.wait());
    if (for_result == nullptr && IsUntold(*scene, thread) && IsForResult(thread.wait())) for_result = &thread;
  }
  const bool is_certain = !may_go_on && at_pipes.empty();
  for (Finding& finding : *findings) {
    if (finding.kind() != Finding::OWNER_UNKNOWN) continue;
    if (is_certain) finding.set_severity(Finding::HANG);
    finding.add_details("no thread of the process runs or will be woken from outside, as far as can be seen");
  }
  for (const v1::Thread* thread : at_pipes) findings->push_back(DescribePipe(scene, *thread, *OwnPipe(*scene, *thread)));
  if (for_result == nullptr) return;
  findings->push_back(Describe(scene, *for_result, is_certain ? Finding::HANG : Finding::SUSPICIOUS));
}

}  // namespace stackd

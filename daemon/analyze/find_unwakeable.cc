#include "daemon/analyze/find_unwakeable.h"

#include <algorithm>
#include <string>

#include "daemon/analyze/wait_words.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

bool HasSeverity(const std::vector<Finding>& findings, Finding::Severity severity) {
  return std::ranges::any_of(findings, [&](const Finding& finding) { return finding.severity() == severity; });
}

// Every thread waits for another one, and none for time or for anything from outside.
bool AllWaitInside(const v1::Dump& dump) {
  return !dump.threads().empty() && std::ranges::all_of(dump.threads(), [](const v1::Thread& thread) {
    return thread.status() == v1::Thread::EXITED || (thread.has_wait() && EndsFromInside(thread.wait()));
  });
}

// Those that wait for another thread's end say least.
void AddAllThreads(const v1::Dump& dump, Finding* finding) {
  for (const bool joins : {false, true}) {
    for (const v1::Thread& thread : dump.threads()) {
      if (thread.has_wait() && (thread.wait().kind() == Wait::JOIN) == joins) finding->add_tids(thread.tid());
    }
  }
}

Finding DescribeAll(WaitScene* scene) {
  constexpr int kMaxDetails = 5;
  Finding finding;
  finding.set_kind(Finding::NOBODY_TO_WAKE);
  finding.set_severity(Finding::HANG);
  AddAllThreads(scene->dump(), &finding);
  const v1::Thread& first = *scene->Find(finding.tids(0));
  std::string text = scene->NameAndPlace(first) + " " + first.wait().explanation();
  text += finding.tids_size() == 1
              ? ", and the process has no other thread"
              : ", and each of the other " + std::to_string(finding.tids_size() - 1) + " threads waits likewise";
  finding.set_explanation(text + ": nothing is left to wake them, as far as can be seen");
  for (int i = 1; i < finding.tids_size() && i <= kMaxDetails; ++i) {
    const v1::Thread& thread = *scene->Find(finding.tids(i));
    finding.add_details(scene->NameAndPlace(thread) + " " + thread.wait().explanation());
  }
  for (int32_t tid : finding.tids()) scene->SetExplained(tid);
  return finding;
}

const WaitedFd* FindFd(const Capture& capture, int32_t fd) {
  const auto found = std::ranges::find(capture.fds, fd, &WaitedFd::fd);
  return found == capture.fds.end() ? nullptr : &*found;
}

// The one fd that a writing thread waits for, if it is a pipe whose other end is open in the same process.
const WaitedFd* OwnPipe(const WaitScene& scene, const v1::Thread& thread) {
  if (!thread.has_wait() || thread.wait().kind() != Wait::WRITE || thread.wait().fds_size() != 1) return nullptr;
  const WaitedFd* fd = FindFd(scene.capture(), thread.wait().fds(0).fd());
  return fd != nullptr && fd->other_end >= 0 ? fd : nullptr;
}

// Whether some other thread may come to read the pipe: it runs, waits for events or time, or for data.
bool SomebodyMayRead(const v1::Dump& dump, const v1::Thread& writer) {
  return std::ranges::any_of(dump.threads(), [&](const v1::Thread& thread) {
    if (thread.tid() == writer.tid() || thread.status() == v1::Thread::EXITED) return false;
    return !thread.has_wait() || (!EndsFromInside(thread.wait()) && thread.wait().kind() != Wait::WRITE);
  });
}

Finding DescribePipe(WaitScene* scene, const v1::Thread& writer, const WaitedFd& pipe) {
  Finding finding;
  finding.set_kind(Finding::NOBODY_TO_WAKE);
  finding.set_severity(Finding::SUSPICIOUS);
  finding.set_explanation(scene->NameAndPlace(writer) + " " + writer.wait().explanation() +
                          ", which is full; its other end is fd " + std::to_string(pipe.other_end) +
                          " of this process, where no thread is left to read it, as far as can be seen");
  finding.add_details("another process may have the other end as well");
  finding.add_tids(writer.tid());
  scene->SetExplained(writer.tid());
  return finding;
}

}  // namespace

void FindUnwakeable(WaitScene* scene, std::vector<Finding>* findings) {
  const v1::Dump& dump = scene->dump();
  for (const v1::Thread& thread : dump.threads()) {
    const WaitedFd* pipe = OwnPipe(*scene, thread);
    if (pipe != nullptr && !SomebodyMayRead(dump, thread)) findings->push_back(DescribePipe(scene, thread, *pipe));
  }
  // A circle or a lost lock is reason enough why the others wait.
  if (!HasSeverity(*findings, Finding::HANG) && AllWaitInside(dump)) findings->push_back(DescribeAll(scene));
}

}  // namespace stackd

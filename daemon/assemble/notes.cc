#include "daemon/assemble/notes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "daemon/assemble/stack_end.h"
#include "daemon/assemble/unread_runtimes.h"

namespace stackd {
namespace {

// One module without symbols is news; fifty are one sentence.
constexpr size_t kMaxUnnamedModules = 8;

std::string Count(int64_t count, std::string_view noun) {
  std::string text = std::to_string(count) + " ";
  text += noun;
  if (count != 1) text += "s";
  return text;
}

void NoteMissingThreads(const v1::ThreadCounts& counts, std::vector<std::string>* notes) {
  const auto note = [&](int count, std::string_view what) {
    if (count == 0) return;
    notes->push_back(std::to_string(count) + " of " + Count(counts.listed(), "thread") + " " + std::string(what));
  };
  note(counts.timed_out(), "did not answer by the deadline");
  note(counts.ring_full(), "found no room in the ring by the deadline");
  note(counts.signal_queue_full(), "could not be asked: the kernel would not queue the signal (RLIMIT_SIGPENDING)");
  note(counts.agent_fault(), "met a fault of the agent's handler, which gave up");
  note(counts.uninterruptible(), "cannot answer inside an uninterruptible system call (D state)");
  note(counts.stopped(), "cannot answer while stopped by a signal or a debugger");
  note(counts.signal_blocked(), counts.signal_blocked() == 1 ? "blocks the dump signal" : "block the dump signal");
  note(counts.running(),
       "ran or could not be read asleep, and were not interrupted: one with --quiet prefer, or without --no-ptrace, has "
       "more");
  note(counts.exited(), "exited during the dump");
}

// "the stacks of 3 threads end before their first function: no unwind information in libfoo.so"
void NoteIncompleteStacks(const v1::Dump& dump, const std::vector<int>& threads_of_stack, std::vector<std::string>* notes) {
  std::map<std::string, int> threads_by_reason;
  for (int i = 0; i < dump.stacks_size(); ++i) {
    if (threads_of_stack[i] > 0 && !IsWhole(dump.stacks(i))) {
      threads_by_reason[StackEndInWords(dump.stacks(i))] += threads_of_stack[i];
    }
  }
  std::vector<std::pair<std::string, int>> reasons(threads_by_reason.begin(), threads_by_reason.end());
  std::ranges::stable_sort(reasons, std::greater(), &std::pair<std::string, int>::second);
  for (const auto& [reason, threads] : reasons) {
    notes->push_back((threads == 1 ? "the stack of 1 thread ends" : "the stacks of " + Count(threads, "thread") + " end") +
                     " before the thread's first function: " + reason);
  }
}

// "of 12 frames in 3 threads it is not known between which native frames they ran: they stand last"
void NoteUnplacedFrames(const v1::Dump& dump, const std::vector<int>& threads_of_stack, std::vector<std::string>* notes) {
  int64_t frames = 0, threads = 0;
  for (int i = 0; i < dump.stacks_size(); ++i) {
    const auto unplaced = std::ranges::count(dump.stacks(i).frames(), v1::Frame::RUNTIME_UNPLACED, &v1::Frame::origin);
    frames += unplaced;
    threads += unplaced > 0 ? threads_of_stack[i] : 0;
  }
  if (frames == 0) return;
  notes->push_back("of " + Count(frames, "frame") + " in " + Count(threads, "thread") +
                   " it is not known between which native frames they ran: they stand last");
}

struct Unnamed {
  int frames = 0;
  std::string reason;
};

// "no symbols for libbar.so (12 frames): …"
void NoteUnnamedModules(const v1::Dump& dump, const std::vector<int>& threads_of_stack, std::vector<std::string>* notes) {
  std::map<std::string, Unnamed> unnamed_by_module;
  for (int i = 0; i < dump.stacks_size(); ++i) {
    if (threads_of_stack[i] == 0) continue;
    for (const v1::Frame& frame : dump.stacks(i).frames()) {
      if (!frame.function().empty() || frame.replaced()) continue;
      Unnamed& unnamed = unnamed_by_module[frame.module()];
      ++unnamed.frames;
      if (unnamed.reason.empty()) unnamed.reason = frame.unnamed_reason();
    }
  }
  std::vector<std::pair<std::string, Unnamed>> modules(unnamed_by_module.begin(), unnamed_by_module.end());
  std::ranges::stable_sort(modules, std::greater(), [](const auto& module) { return module.second.frames; });
  for (size_t i = 0; i < std::min(modules.size(), kMaxUnnamedModules); ++i) {
    const auto& [module, unnamed] = modules[i];
    const std::string where = module == "[anon]" ? "code outside all files" : module;
    notes->push_back("no function names for " + where + " (" + Count(unnamed.frames, "frame") + ")" +
                     (unnamed.reason.empty() ? "" : ": " + unnamed.reason));
  }
  if (modules.size() > kMaxUnnamedModules) {
    notes->push_back("no function names for " + Count(modules.size() - kMaxUnnamedModules, "more module"));
  }
}

}  // namespace

std::vector<std::string> NotesOn(const v1::Dump& dump, const std::vector<int>& threads_of_stack) {
  std::vector<std::string> notes;
  NoteMissingThreads(dump.thread_counts(), &notes);
  NoteIncompleteStacks(dump, threads_of_stack, &notes);
  NoteUnplacedFrames(dump, threads_of_stack, &notes);
  NoteUnnamedModules(dump, threads_of_stack, &notes);
  std::ranges::move(NotesOnUnreadRuntimes(dump, threads_of_stack), std::back_inserter(notes));
  return notes;
}

}  // namespace stackd

// The method of servers that dump themselves (Kudu's, as published), on the hung threads of this benchmark. One thread at a
// time gets a signal, unwinds itself in the handler with libunwind's local API, and hands the addresses over by a futex.
//
//   baseline_inprocess step|backtrace raw|names THREADS SECONDS
//
// step: unw_step() per frame, as Kudu. backtrace: unw_backtrace(), the fastest that libunwind has. names: each address of
// each stack by abseil's symbolizer, from symbol tables, without inlined frames and lines.
// Prints "STACKS_PER_SECOND FRAMES_PER_STACK".
#define UNW_LOCAL_ONLY
#include <absl/debugging/symbolize.h>
#include <libunwind.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/bench/hung_threads.h"

namespace {

constexpr int kMaxFrames = 64;

struct Handover {
  bool by_backtrace;
  int frame_count;
  void* frames[kMaxFrames];
  alignas(64) int done;
};
Handover handover;

int StepThrough(ucontext_t* context, void** frames) {
  unw_cursor_t cursor;
  if (unw_init_local2(&cursor, context, UNW_INIT_SIGNAL_FRAME) != 0) return 0;
  int count = 0;
  do {
    unw_word_t pc = 0;
    unw_get_reg(&cursor, UNW_REG_IP, &pc);
    frames[count++] = reinterpret_cast<void*>(pc);
  } while (count < kMaxFrames && unw_step(&cursor) > 0);
  return count;
}

void OnSignal(int, siginfo_t*, void* context) {
  int saved_errno = errno;
  handover.frame_count = handover.by_backtrace ? unw_backtrace(handover.frames, kMaxFrames)
                                               : StepThrough(static_cast<ucontext_t*>(context), handover.frames);
  __atomic_store_n(&handover.done, 1, __ATOMIC_RELEASE);
  syscall(SYS_futex, &handover.done, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  errno = saved_errno;
}

void Capture(pid_t tid) {
  __atomic_store_n(&handover.done, 0, __ATOMIC_RELAXED);
  syscall(SYS_tgkill, getpid(), tid, SIGUSR2);
  while (__atomic_load_n(&handover.done, __ATOMIC_ACQUIRE) == 0) {
    syscall(SYS_futex, &handover.done, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }
}

// Kudu makes text of it: so must we, or the compiler drops it.
size_t Name(std::string* text) {
  for (int i = 0; i < handover.frame_count; ++i) {
    char name[512];
    // The address after a call may be that of the next function.
    char* pc = static_cast<char*>(handover.frames[i]) - (i == 0 ? 0 : 1);
    text->append(absl::Symbolize(pc, name, sizeof(name)) ? name : "?");
    text->push_back('\n');
  }
  return text->size();
}

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  handover.by_backtrace = strcmp(argv[1], "backtrace") == 0;
  bool with_names = strcmp(argv[2], "names") == 0;
  absl::InitializeSymbolizer(argv[0]);
  stackd::bench::StartHungThreads(atoi(argv[3]));
  double seconds = atof(argv[4]);

  struct sigaction action{};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
  std::vector<pid_t> tids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    pid_t tid = atoi(entry.path().filename().c_str());
    if (tid != getpid()) tids.push_back(tid);
  }

  size_t stacks = 0;
  size_t frames = 0;
  size_t text_bytes = 0;
  Capture(tids[0]);  // libunwind fills its caches
  double begin = Now();
  double now = begin;
  for (size_t i = 0; now - begin < seconds; i = (i + 1) % tids.size()) {
    Capture(tids[i]);
    stacks++;
    frames += static_cast<size_t>(handover.frame_count);
    std::string text;
    if (with_names) text_bytes += Name(&text);
    now = Now();
  }
  if (with_names && text_bytes == 0) return 1;
  printf("%.0f %.1f\n", static_cast<double>(stacks) / (now - begin),
         static_cast<double>(frames) / static_cast<double>(stacks));
  fflush(stdout);
  _exit(0);  // the threads hold what destructors would take
}

// Programs in a sandbox, which refuses nearly all system calls: what they do must not change by the agent's being there.
//
//     sandbox_victim CASE SECONDS
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr long kAnswer = 4242;

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double end_s;
bool Over() { return Now() >= end_s; }

[[noreturn]] void Fail(int line) {
  dprintf(2, "line %d\n", line);
  _exit(10);
}

#define REQUIRE(condition)            \
  do {                                \
    if (!(condition)) Fail(__LINE__); \
  } while (false)

// All other calls come to `action`.
void Allow(std::vector<unsigned> calls, unsigned action) {
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (unsigned call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, action));
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}

void Say(const char* text) { REQUIRE(write(1, text, strlen(text)) == static_cast<ssize_t>(strlen(text))); }

// The kernel makes a signal of each call that is not allowed, and its handler is what answers.
void Broker(int flags) {
  struct sigaction action{};
  action.sa_sigaction = [](int, siginfo_t* info, void* context) {
    // So long that most dumps come meanwhile.
    for (double until = Now() + 0.0001; Now() < until;) continue;
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    registers[REG_RAX] = info->si_syscall == SYS_getppid ? kAnswer : -ENOSYS;
  };
  action.sa_flags = SA_SIGINFO | flags;
  sigemptyset(&action.sa_mask);
  REQUIRE(sigaction(SIGSYS, &action, nullptr) == 0);
  std::thread([] {
    for (;;) pause();
  }).detach();
  Allow({SYS_rt_sigreturn, SYS_write, SYS_exit_group, SYS_nanosleep, SYS_clock_nanosleep}, SECCOMP_RET_TRAP);
  long calls = 0;
  for (; calls < 1000 || !Over(); calls++) {
    REQUIRE(syscall(SYS_getppid) == kAnswer);
    if (calls % 16 == 0) usleep(100);
  }
  Say("ok\n");
}

// A handler that was left by a jump.
void Recover() {
  static sigjmp_buf back;
  struct sigaction action{};
  action.sa_handler = [](int) { siglongjmp(back, 1); };
  REQUIRE(sigaction(SIGSEGV, &action, nullptr) == 0);
  static volatile int* volatile nothing = nullptr;
  if (sigsetjmp(back, 1) == 0) *nothing = 0;
}

// Nothing is left to do but to end.
void Ends(const std::function<void()>& end) {
  std::thread([] {
    for (;;) pause();
  }).detach();
  while (!Over()) usleep(1000);
  Say("ok\n");
  Allow({SYS_rt_sigreturn, SYS_read, SYS_write, SYS_exit_group, SYS_exit, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_brk,
         SYS_futex, SYS_fstat, SYS_newfstatat},
        SECCOMP_RET_KILL_PROCESS);
  end();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::map<std::string, std::function<void()>> kCases = {
      {"broker", [] { Broker(0); }},
      {"broker_on_stack", [] { Broker(SA_ONSTACK); }},
      {"broker_nodefer", [] { Broker(SA_NODEFER); }},
      {"return", [] { Ends([] {}); }},
      {"exit", [] { Ends([] { exit(0); }); }},
      {"immediate_exit", [] { Ends([] { _exit(0); }); }},
      {"quick_exit", [] { Ends([] { quick_exit(0); }); }},
      {"recovered",
       [] {
         Recover();
         Ends([] { exit(0); });
       }},
  };
  end_s = Now() + atof(argv[2]);
  auto found = kCases.find(argv[1]);
  if (found == kCases.end()) return 2;
  found->second();
  return 0;
}

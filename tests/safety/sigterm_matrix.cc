// Sets handlers of SIGTERM in every way that a program may, has each called, and prints what the program could notice. That
// is what it is given back, what the kernel was told, how often and where the handler ran, which calls were interrupted.
// Nothing printed differs from run to run, so that the lines with the agent must be those without.
//
// With an argument: handles SIGTERM, prints a line for each and stays, until its standard input ends.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace {

constexpr int kHandlers = 24;  // more than the agent has trampolines for

struct KernelAction {
  void* handler;
  unsigned long flags;
  void* restorer;
  unsigned long mask;
};

KernelAction OfKernel() {
  KernelAction action = {};
  syscall(SYS_rt_sigaction, SIGTERM, nullptr, &action, 8);
  return action;
}

// What the handlers saw.
volatile sig_atomic_t runs, deepest, depth, last_handler, nested_raises, jumps;
volatile unsigned long seen_mask;
volatile bool on_alternate_stack, returns_to_restorer, has_context;
volatile int seen_code, seen_number;
char alternate_stack[64 << 10];
sigjmp_buf out;

template <int N>
__attribute__((noinline)) void Handler(int number, siginfo_t* info, void* context) {
  runs = runs + 1;
  depth = depth + 1;
  if (depth > deepest) deepest = depth;
  last_handler = N;
  seen_number = number;
  char here;
  on_alternate_stack = &here >= alternate_stack && &here < alternate_stack + sizeof(alternate_stack);
  const KernelAction action = OfKernel();
  returns_to_restorer = __builtin_return_address(0) == action.restorer;
  has_context = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] != 0;
  seen_code = (action.flags & SA_SIGINFO) != 0 ? info->si_code : 0;
  unsigned long mask = 0;
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, &mask, 8);
  seen_mask = mask;
  if (nested_raises > 0) {
    nested_raises = nested_raises - 1;
    raise(SIGTERM);
  }
  depth = depth - 1;
  if (jumps > 0) {
    jumps = jumps - 1;
    siglongjmp(out, 1);
  }
}

using Function = void (*)(int, siginfo_t*, void*);

template <int... N>
constexpr auto AllHandlers(std::integer_sequence<int, N...>) {
  struct List {
    Function functions[sizeof...(N)];
  };
  return List{{Handler<N>...}};
}

constexpr auto kAll = AllHandlers(std::make_integer_sequence<int, kHandlers>());

sighandler_t H(int n) { return reinterpret_cast<sighandler_t>(reinterpret_cast<void*>(kAll.functions[n])); }

std::string Name(sighandler_t handler) {
  if (handler == SIG_DFL) return "default";
  if (handler == SIG_IGN) return "ignored";
  if (handler == SIG_ERR) return "error";
  if (handler == SIG_HOLD) return "held";
  for (int i = 0; i < kHandlers; i++) {
    if (handler == H(i)) return "handler " + std::to_string(i);
  }
  return "unknown";
}

void Query(const char* when) {
  struct sigaction action;
  sigaction(SIGTERM, nullptr, &action);
  const KernelAction kernel = OfKernel();
  printf("  %s: %s flags %x mask %lx, kernel flags %lx mask %lx\n", when, Name(action.sa_handler).c_str(),
         static_cast<unsigned>(action.sa_flags), *reinterpret_cast<unsigned long*>(&action.sa_mask), kernel.flags,
         kernel.mask);
}

void Raise(const char* when) {
  runs = 0;
  deepest = 0;
  last_handler = -1;
  on_alternate_stack = false;
  raise(SIGTERM);
  printf("  %s: %d runs %d deep, last %d, signal %d code %d mask %lx%s%s%s\n", when, static_cast<int>(runs),
         static_cast<int>(deepest), static_cast<int>(last_handler), seen_number, seen_code, seen_mask,
         on_alternate_stack ? ", alternate stack" : "", returns_to_restorer ? ", from the kernel" : "",
         has_context ? ", context" : "");
}

struct Reader {
  int fds[2];
  ssize_t got = 0;
  int error = 0;
  volatile pid_t tid = 0;
};

void* Read(void* argument) {
  auto* reader = static_cast<Reader*>(argument);
  reader->tid = gettid();
  char byte;
  reader->got = read(reader->fds[0], &byte, 1);
  reader->error = reader->got < 0 ? errno : 0;
  return nullptr;
}

bool Sleeps(pid_t tid) {
  char path[64], text[512] = {};
  snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
  const int fd = open(path, O_RDONLY);
  const ssize_t got = read(fd, text, sizeof(text) - 1);
  close(fd);
  const char* end = got > 0 ? strrchr(text, ')') : nullptr;
  return end != nullptr && end[2] == 'S';
}

// Whether a read that the signal comes into goes on.
void Interrupt() {
  Reader reader;
  if (pipe(reader.fds) != 0) abort();
  runs = 0;
  pthread_t thread;
  pthread_create(&thread, nullptr, Read, &reader);
  while (reader.tid == 0 || !Sleeps(reader.tid)) sched_yield();
  pthread_kill(thread, SIGTERM);
  while (runs == 0) sched_yield();
  // An interrupted read ends by itself; one that goes on needs the byte.
  while (reader.error == 0 && !Sleeps(reader.tid) && pthread_tryjoin_np(thread, nullptr) != 0) sched_yield();
  if (write(reader.fds[1], "x", 1) != 1) abort();
  pthread_join(thread, nullptr);
  printf("  in read: %zd %s, %d runs\n", reader.got, reader.error == EINTR ? "EINTR" : "", static_cast<int>(runs));
}

void Act(int flags, int masked, int handler = 0) {
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_handler = H(handler);
  action.sa_flags = flags;
  if (masked != 0) sigaddset(&action.sa_mask, masked);
  const int result = sigaction(SIGTERM, &action, &old);
  printf("  sigaction %d, was %s\n", result, Name(old.sa_handler).c_str());
}

// --- The cases ---

template <int kFlags, int kMasked>
void BySigaction() {
  Act(kFlags, kMasked);
  Query("set");
  if ((kFlags & SA_RESETHAND) == 0) Interrupt();
  nested_raises = (kFlags & SA_RESETHAND) == 0 ? 2 : 0;
  Raise("raised");
  Query("raised");
}

template <sighandler_t (*kSet)(int, sighandler_t)>
void BySignal() {
  printf("  was %s\n", Name(kSet(SIGTERM, H(1))).c_str());
  Query("set");
  printf("  was %s\n", Name(kSet(SIGTERM, H(2))).c_str());
  if (kSet != sysv_signal) Interrupt();
  Raise("raised");
  Query("raised");
  printf("  was %s\n", Name(kSet(SIGTERM, SIG_IGN)).c_str());
  Raise("ignored");
  printf("  was %s\n", Name(kSet(SIGTERM, SIG_DFL)).c_str());
  Query("default");
}

template <int kInterrupts>
void Siginterrupt() {
  Act(kInterrupts != 0 ? SA_RESTART : 0, 0);
  printf("  siginterrupt %d\n", siginterrupt(SIGTERM, kInterrupts));
  Query("set");
  Interrupt();
  // What siginterrupt() has said holds for later calls of signal().
  signal(SIGTERM, H(3));
  Query("signal");
  Interrupt();
}

void SigsetGivesBackWhatSigactionTakes() {
  Act(0, 0, 4);
  sighandler_t before = sigset(SIGTERM, H(5));
  printf("  was %s\n", Name(before).c_str());
  Act(0, 0, 6);
  signal(SIGTERM, before);
  Query("set back");
  Raise("raised");
  before = sigset(SIGTERM, SIG_HOLD);
  printf("  was %s\n", Name(before).c_str());
  Raise("held");
  before = sigset(SIGTERM, H(7));
  printf("  was %s, %d runs\n", Name(before).c_str(), static_cast<int>(runs));
  sigignore(SIGTERM);
  Query("ignored");
}

// As libraries do that call the kernel by themselves.
void KernelActionSetBack() {
  Act(SA_RESTART, SIGINT, 8);
  KernelAction before = OfKernel();
  Act(0, 0, 9);
  syscall(SYS_rt_sigaction, SIGTERM, &before, nullptr, 8);
  Query("set back by the kernel's call");
  Raise("raised");
  Act(0, 0, 9);
  struct sigaction action = {};
  action.sa_handler = reinterpret_cast<sighandler_t>(before.handler);
  sigaction(SIGTERM, &action, nullptr);
  Query("set back by sigaction()");
  Raise("raised");
}

void ManyHandlers() {
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < kHandlers; i++) {
      Act(0, 0, i);
      Raise("raised");
    }
  }
}

void JumpOut() {
  Act(0, 0);
  for (int i = 0; i < 3; i++) {
    jumps = 1;
    if (sigsetjmp(out, 1) == 0) {
      raise(SIGTERM);
      printf("  did not jump\n");
    }
  }
  Raise("raised");
}

void ToldByExit(int status) {
  if (WIFSIGNALED(status)) printf("  child: signal %d\n", WTERMSIG(status));
  if (WIFEXITED(status)) printf("  child: exit %d\n", WEXITSTATUS(status));
}

// The child takes it at once, before anything of a library's has been called in it.
template <typename Make>
void Child(Make make) {
  Act(0, 0);
  fflush(stdout);
  runs = 0;
  const pid_t child = make();
  if (child == 0) {
    kill(static_cast<pid_t>(syscall(SYS_getpid)), SIGTERM);
    _exit(40 + runs);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ToldByExit(status);
}

void ChildOfFork() {
  Child([] { return fork(); });
}
void ChildOfFork2() {
  Child([] { return _Fork(); });
}
void ChildOfClone() {
  Child([] { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)); });
}

void ChildThatIsSentIt() {
  Act(0, 0);
  fflush(stdout);
  runs = 0;
  const pid_t child = fork();
  if (child == 0) {
    while (runs == 0) sched_yield();
    _exit(50 + runs);
  }
  kill(child, SIGTERM);
  int status = 0;
  waitpid(child, &status, 0);
  ToldByExit(status);
  Raise("raised in the parent");
}

// In the child of vfork() the memory is the parent's, the actions are not.
void ChildOfVfork() {
  Act(0, 0);
  fflush(stdout);
  runs = 0;
  const pid_t child = vfork();
  if (child == 0) {
    signal(SIGTERM, H(10));
    kill(static_cast<pid_t>(syscall(SYS_getpid)), SIGTERM);
    _exit(static_cast<int>(last_handler));
  }
  int status = 0;
  waitpid(child, &status, 0);
  ToldByExit(status);
  Query("the parent's");
  Raise("raised");
}

template <int kDefault>
void Exec() {
  if (kDefault == 0) {
    Act(0, 0);
  } else {
    signal(SIGTERM, SIG_IGN);
  }
  char shell[] = "/bin/sh", option[] = "-c", command[] = "kill -TERM $$; exit 7";
  char* arguments[] = {shell, option, command, nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, shell, nullptr, nullptr, arguments, environ) != 0) abort();
  int status = 0;
  waitpid(child, &status, 0);
  ToldByExit(status);
  fflush(stdout);
  child = fork();
  if (child == 0) {
    execve(shell, arguments, environ);
    _exit(127);
  }
  waitpid(child, &status, 0);
  ToldByExit(status);
}

void DefaultEnds() {
  for (int how = 0; how < 3; how++) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      if (how == 1) Act(SA_RESETHAND, 0);
      if (how == 2) signal(SIGTERM, H(0)), signal(SIGTERM, SIG_DFL);
      fflush(stdout);
      raise(SIGTERM);
      raise(SIGTERM);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ToldByExit(status);
  }
}

void AlternateStack() {
  const stack_t stack = {.ss_sp = alternate_stack, .ss_flags = 0, .ss_size = sizeof(alternate_stack)};
  sigaltstack(&stack, nullptr);
  Act(SA_ONSTACK | SA_SIGINFO, SIGUSR1);
  Raise("raised");
  Act(0, 0);
  Raise("raised");
}

void Blocked() {
  Act(0, 0);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  Raise("blocked");
  int number = 0;
  const int result = sigwait(&set, &number);
  printf("  sigwait %d: %d\n", result, number);
  raise(SIGTERM);
  siginfo_t info = {};
  printf("  sigwaitinfo %d", sigwaitinfo(&set, &info));
  printf(": %d %d\n", info.si_signo, info.si_code);
  const int fd = signalfd(-1, &set, SFD_NONBLOCK);
  raise(SIGTERM);
  signalfd_siginfo told = {};
  const ssize_t got = read(fd, &told, sizeof(told));
  printf("  signalfd %zd: %u\n", got, told.ssi_signo);
  raise(SIGTERM);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  printf("  unblocked: %d runs\n", static_cast<int>(runs));
}

void Refused() {
  struct sigaction action = {};
  errno = 0;
  printf("  %d", sigaction(SIGKILL, &action, nullptr));
  printf(" %d\n", errno);
  printf("  %s\n", Name(signal(SIGTERM, SIG_ERR)).c_str());
  Query("after it");
}

struct Case {
  const char* name;
  void (*run)();
};

constexpr Case kCases[] = {
    {"sigaction", BySigaction<0, 0>},
    {"sigaction, SA_SIGINFO, mask", BySigaction<SA_SIGINFO, SIGUSR2>},
    {"sigaction, SA_RESTART", BySigaction<SA_RESTART, SIGINT>},
    {"sigaction, SA_NODEFER", BySigaction<SA_NODEFER, 0>},
    {"sigaction, SA_NODEFER | SA_RESTART | SA_SIGINFO", BySigaction<SA_NODEFER | SA_RESTART | SA_SIGINFO, SIGHUP>},
    {"sigaction, SA_RESETHAND", BySigaction<static_cast<int>(SA_RESETHAND), 0>},
    {"signal", BySignal<signal>},
    {"bsd_signal", BySignal<ssignal>},
    {"sysv_signal", BySignal<sysv_signal>},
    {"sigset", BySignal<sigset>},
    {"siginterrupt on", Siginterrupt<1>},
    {"siginterrupt off", Siginterrupt<0>},
    {"sigset gives back what sigaction takes", SigsetGivesBackWhatSigactionTakes},
    {"what the kernel tells, set back", KernelActionSetBack},
    {"many handlers", ManyHandlers},
    {"jump out", JumpOut},
    {"child of fork", ChildOfFork},
    {"child of _Fork", ChildOfFork2},
    {"child of clone", ChildOfClone},
    {"child that is sent it", ChildThatIsSentIt},
    {"child of vfork", ChildOfVfork},
    {"exec", Exec<0>},
    {"exec, ignored", Exec<1>},
    {"default", DefaultEnds},
    {"alternate stack", AlternateStack},
    {"blocked", Blocked},
    {"refused", Refused},
};

// Each in a process of its own.
int RunCases() {
  int failed = 0;
  for (const Case& each : kCases) {
    printf("%s\n", each.name);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      each.run();
      fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) printf("  ended with %x\n", status);
    failed += status != 0;
  }
  return failed;
}

int pipe_of_signals[2];

void Tell(int) {
  if (write(pipe_of_signals[1], "x", 1) != 1) abort();
}

int Stay(const char* how) {
  if (pipe(pipe_of_signals) != 0) return 1;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  if (strcmp(how, "handle") == 0) {
    signal(SIGTERM, Tell);
  } else {
    // No handler takes it.
    sigprocmask(SIG_BLOCK, &set, nullptr);
  }
  puts("ready");
  fflush(stdout);
  pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {pipe_of_signals[0], POLLIN, 0}};
  for (;;) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return 1;
    char byte;
    if (fds[0].revents != 0 && read(STDIN_FILENO, &byte, 1) <= 0) return 0;
    if (fds[1].revents != 0 && read(pipe_of_signals[0], &byte, 1) == 1) {
      puts("told");
      fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) { return argc > 1 ? Stay(argv[1]) : RunCases(); }

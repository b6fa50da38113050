/* One fatal signal, on the way and under the disposition that the command line says. Prints what a program can notice: the
 * arguments of its handler, the masks, the stack that it runs on, what sigaction() answers. Prints also what is so
 * afterwards. The test compares that, and the end of the process, with and without the agent; nothing printed depends on
 * where things lie.
 *
 * Words of the command line, in any order:
 *
 * - signal=SEGV|BUS|ILL|FPE|ABRT|TRAP|SYS|RTMIN
 * - way=, how the signal comes: raise, kill, tgkill (from another thread), sigqueue, child (by another process), abort
 * - way=fault: a null pointer, a file that is too short, ud2, a division by 0, int3, a system call that seccomp forbids
 * - way=protected: SEGV at a page without permission
 * - thread=main|other, which thread it comes to
 * - before=, what the program has done about the signal: default, ignore, blocked; or it has a handler:
 *     return (repairs the fault), longjmp, plain_longjmp (the mask stays), pthread_exit, exit_now, exit, exec, reset_raise,
 *     reset_return (repairs nothing), nested (raises it again inside), fault_inside, abort_inside, previous (calls the
 *     handler that sigaction() said was there before)
 * - flags=, of the handler, with commas: siginfo, nodefer, onstack, resethand, mask, restart, deep (needs much stack)
 * - agent=first|last, installed before or after the handler; only where it is linked in
 * - await: goes on when the agent is registered; told: when a line comes on stdin
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "tests/programs/crash.h"
#include "tests/programs/victim.h"

#ifdef WITH_AGENT
#include "agent/include/stackd/agent.h"
#endif

enum { kHandlerExitCode = 3, kFinalExitCode = 7, kAlternateBytes = 256 << 10, kForbiddenCall = SYS_sysfs };

static const char* way = "raise";
static const char* before = "default";
static const char* flags = "";
static int number;
static bool in_other_thread;

static char* target;  // what a fault is about
static char* alternate_stack;
static char* thread_stack;
static size_t thread_stack_bytes;
static pid_t target_tid, child;
static pthread_t target_thread;
static sigjmp_buf back;
static volatile int deliveries;
static struct sigaction previous;
static volatile int sent;

extern char store_pc[], store_end[], illegal_pc[], illegal_end[], divide_pc[], divide_end[], trap_end[];

static bool has_flag(const char* name) { return strstr(flags, name) != NULL; }

/* A line of its own, by one write(): stdio is not for signal handlers. */
__attribute__((format(printf, 1, 2))) static void say(const char* format, ...) {
  char line[400];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (write(STDOUT_FILENO, line, (size_t)length) != length) _exit(99);
}

static unsigned long mask_bits(const sigset_t* set) {
  unsigned long bits;
  memcpy(&bits, set, sizeof bits);
  return bits;
}

static unsigned long current_mask(void) {
  sigset_t set;
  sigprocmask(SIG_SETMASK, NULL, &set);
  return mask_bits(&set);
}

static unsigned rounding_state(void) {
  unsigned value;
  __asm__ volatile("stmxcsr %0" : "=m"(value));
  /* The control bits; the others tell of past operations. */
  return value & 0xffc0u;
}

static void on_signal(int, siginfo_t*, void*);
static void on_plain_signal(int);
static void earlier_handler(int, siginfo_t*, void*);

static const char* handler_name(const struct sigaction* action) {
  if (action->sa_handler == SIG_DFL) return "default";
  if (action->sa_handler == SIG_IGN) return "ignore";
  if (action->sa_sigaction == on_signal) return "ours";
  if (action->sa_handler == on_plain_signal) return "ours, plain";
  if (action->sa_sigaction == earlier_handler) return "earlier";
  return "UNKNOWN";
}

static void say_disposition(const char* when) {
  struct sigaction action;
  if (sigaction(number, NULL, &action) != 0) say("%s: sigaction: %s\n", when, strerror(errno));
  const int restorer = 0x04000000;  // glibc's business
  say("%s: handler %s flags %x mask %lx\n", when, handler_name(&action), action.sa_flags & ~restorer,
      mask_bits(&action.sa_mask));
}

static const char* stack_name(const char* pointer) {
  if (pointer >= alternate_stack && pointer < alternate_stack + kAlternateBytes) return "alternate";
  if (pointer >= thread_stack && pointer < thread_stack + thread_stack_bytes) return "thread's";
  return "UNKNOWN";
}

static const char* place_name(const void* address, const ucontext_t* context) {
  if (address == NULL) return "0";
  if (address == target) return "target";
  if (address == (void*)context->uc_mcontext.gregs[REG_RIP]) return "pc";
  return "elsewhere";
}

static const char* sender_name(pid_t pid) {
  return pid == getpid() ? "self" : pid == child ? "child" : pid == 0 ? "0" : "other";
}

static const char* pc_name(const ucontext_t* context) {
  const char* pc = (const char*)context->uc_mcontext.gregs[REG_RIP];
  if (pc == store_pc) return "store";
  if (pc == illegal_pc) return "illegal";
  if (pc == divide_pc) return "divide";
  if (pc == trap_end) return "trap";
  return "elsewhere";
}

static void say_signal(int got, const siginfo_t* info, const ucontext_t* context) {
  say("handler: signal %d errno %d code %d pc %s\n", got, info->si_errno, info->si_code, pc_name(context));
  const int by_seccomp = 1;  // SYS_SECCOMP, which glibc does not name
  if (info->si_code == by_seccomp && got == SIGSYS) {
    say("seccomp: call %d at pc %d\n", info->si_syscall,
        (long long)info->si_call_addr == context->uc_mcontext.gregs[REG_RIP]);
  } else if (info->si_code > 0) {
    say("fault: at %s\n", place_name(info->si_addr, context));
  } else {
    say("sent: by %s uid %d value %d\n", sender_name(info->si_pid), (int)info->si_uid,
        info->si_code == SI_QUEUE ? info->si_value.sival_int : 0);
  }
  say("interrupted: mask %lx stack %s\n", mask_bits(&context->uc_sigmask),
      stack_name((const char*)context->uc_mcontext.gregs[REG_RSP]));
}

/* Behind the instruction that faulted. */
static void repair(ucontext_t* context) {
  greg_t* pc = &context->uc_mcontext.gregs[REG_RIP];
  if (*pc == (greg_t)store_pc) *pc = (greg_t)store_end;
  if (*pc == (greg_t)illegal_pc) *pc = (greg_t)illegal_end;
  if (*pc == (greg_t)divide_pc) *pc = (greg_t)divide_end;
}

VICTIM_NOINLINE static void store_to(char* address) {
  __asm__ volatile(".globl store_pc, store_end\nstore_pc: movb $1, (%0)\nstore_end:" : : "r"(address) : "memory");
}

VICTIM_NOINLINE static void do_fault(void) {
  switch (number) {
    case SIGSEGV:
    case SIGBUS:
      store_to(target);
      break;
    case SIGILL:
      __asm__ volatile(".globl illegal_pc, illegal_end\nillegal_pc: ud2\nillegal_end:" : : : "memory");
      break;
    case SIGFPE:
      __asm__ volatile(".globl divide_pc, divide_end\ndivide_pc: idivl %%ecx\ndivide_end:"
                       :
                       : "a"(1), "d"(0), "c"(0)
                       : "memory");
      break;
    case SIGTRAP:
      __asm__ volatile(".globl trap_end\nint3\ntrap_end:" : : : "memory");
      break;
    default:
      syscall(kForbiddenCall, 1, 2, 3);
  }
}

VICTIM_NOINLINE static void use_much_stack(void) {
  volatile char much[200 << 10];
  for (size_t i = 0; i < sizeof much; i += 4096) much[i] = 1;
  say("handler: used %zu bytes of stack\n", sizeof much);
}

static void react(ucontext_t* context) {
  deliveries++;
  say("handler: delivery %d thread %s mask %lx stack %s rounding %x\n", deliveries,
      victim_tid() == target_tid ? "right" : "WRONG", current_mask(), stack_name(__builtin_frame_address(0)),
      rounding_state());
  say_disposition("inside");
  if (has_flag("deep")) use_much_stack();
  errno = EILSEQ;
  if (strcmp(before, "return") == 0) {
    if (context != NULL) repair(context);
  } else if (strcmp(before, "longjmp") == 0) {
    siglongjmp(back, 1);
  } else if (strcmp(before, "plain_longjmp") == 0) {
    longjmp(back, 1);
  } else if (strcmp(before, "pthread_exit") == 0) {
    pthread_exit(NULL);
  } else if (strcmp(before, "exit_now") == 0) {
    _exit(kHandlerExitCode);
  } else if (strcmp(before, "exit") == 0) {
    exit(kHandlerExitCode);
  } else if (strcmp(before, "exec") == 0) {
    execl("/bin/sh", "sh", "-c", "echo executed; exit 4", (char*)NULL);
  } else if (strcmp(before, "reset_raise") == 0) {
    signal(number, SIG_DFL);
    raise(number);
  } else if (strcmp(before, "reset_return") == 0) {
    signal(number, SIG_DFL);
  } else if (strcmp(before, "nested") == 0) {
    if (deliveries == 1) raise(number);
    say("handler: %d deliveries at its end\n", deliveries);
    if (context != NULL) repair(context);
  } else if (strcmp(before, "fault_inside") == 0) {
    do_fault();
    say("handler: survived a fault of its own\n");
  } else if (strcmp(before, "abort_inside") == 0) {
    abort();
  } else if (strcmp(before, "previous") == 0) {
    say("handler: before it was %s\n", handler_name(&previous));
    previous.sa_sigaction(number, NULL, context);
  }
}

static void on_signal(int got, siginfo_t* info, void* context) {
  say_signal(got, info, context);
  react(context);
}

static void on_plain_signal(int got) {
  say("handler: signal %d\n", got);
  react(NULL);
}

static void earlier_handler(int got, siginfo_t* info, void* context) {
  (void)info;
  say("earlier handler: signal %d\n", got);
  repair(context);
}

static void at_exit(void) { say("exit handlers run\n"); }

static void install(void) {
  struct sigaction action = {0};
  sigemptyset(&action.sa_mask);
  if (strcmp(before, "default") == 0) return;
  if (strcmp(before, "blocked") == 0) return;
  if (strcmp(before, "ignore") == 0) {
    victim_check(signal(number, SIG_IGN) != SIG_ERR, "signal");
    return;
  }
  if (strcmp(before, "previous") == 0) {
    action.sa_sigaction = earlier_handler;
    action.sa_flags = SA_SIGINFO;
    victim_check(sigaction(number, &action, NULL) == 0, "sigaction");
  }
  if (flags[0] == '\0') {
    victim_check(signal(number, on_plain_signal) != SIG_ERR, "signal");
    return;
  }
  if (has_flag("siginfo")) {
    action.sa_sigaction = on_signal;
    action.sa_flags |= SA_SIGINFO;
  } else {
    action.sa_handler = on_plain_signal;
  }
  if (has_flag("nodefer")) action.sa_flags |= SA_NODEFER;
  if (has_flag("onstack")) action.sa_flags |= SA_ONSTACK;
  if (has_flag("resethand")) action.sa_flags |= (int)SA_RESETHAND;
  if (has_flag("restart")) action.sa_flags |= SA_RESTART;
  if (has_flag("mask")) {
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaddset(&action.sa_mask, SIGTERM);
  }
  victim_check(sigaction(number, &action, &previous) == 0, "sigaction");
}

static void* send_from_thread(void* unused) {
  pthread_kill(target_thread, number);
  sent = 1;
  return unused;
}

static void do_tgkill(void) {
  pthread_t sender;
  sent = 0;
  victim_check(pthread_create(&sender, NULL, send_from_thread, NULL) == 0, "pthread_create");
  /* When `sent` is seen the signal is pending at the latest; the next return from the kernel brings it. */
  while (!sent) sched_yield();
  getppid();
  pthread_join(sender, NULL);
}

static void do_child(void) {
  pid_t parent = getpid();
  fflush(stdout);
  int ends[2];
  victim_check(pipe(ends) == 0, "pipe");
  child = fork();
  victim_check(child >= 0, "fork");
  if (child == 0) {
    char byte;
    /* The parent knows its child's number when the signal comes. */
    if (read(ends[0], &byte, 1) != 1) _exit(1);
    kill(parent, number);
    _exit(0);
  }
  if (write(ends[1], "", 1) != 1) _exit(98);
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
}

VICTIM_NOINLINE static void deed(void) {
  if (strcmp(way, "fault") == 0 || strcmp(way, "protected") == 0) {
    do_fault();
  } else if (strcmp(way, "raise") == 0) {
    raise(number);
  } else if (strcmp(way, "kill") == 0) {
    kill(getpid(), number);
  } else if (strcmp(way, "tgkill") == 0) {
    do_tgkill();
  } else if (strcmp(way, "sigqueue") == 0) {
    sigqueue(getpid(), number, (union sigval){.sival_int = 4711});
  } else if (strcmp(way, "child") == 0) {
    do_child();
  } else if (strcmp(way, "abort") == 0) {
    abort();
  }
}

static void find_own_stack(void) {
  pthread_attr_t attributes;
  void* start;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &start, &thread_stack_bytes);
  pthread_attr_destroy(&attributes);
  thread_stack = start;
}

static void forbid_call(void) {
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kForbiddenCall, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP | 5),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog whole = {.len = sizeof program / sizeof *program, .filter = program};
  victim_check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  victim_check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) == 0, "seccomp");
}

static void make_target(void) {
  if (strcmp(way, "protected") == 0) {
    target = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  } else if (number == SIGBUS) {
    target = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_create("short", 0), 0);
  } else if (number == SIGSEGV) {
    target = (char*)0x18;
  }
  victim_check(target != MAP_FAILED, "mmap");
  if (number == SIGSYS && strcmp(way, "fault") == 0) forbid_call();
}

static void* scene(void* unused) {
  target_tid = victim_tid();
  target_thread = pthread_self();
  find_own_stack();
  make_target();
  if (has_flag("onstack")) {
    alternate_stack = mmap(NULL, kAlternateBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = alternate_stack, .ss_size = kAlternateBytes};
    victim_check(alternate_stack != MAP_FAILED && sigaltstack(&stack, NULL) == 0, "sigaltstack");
  }
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  pthread_sigmask(strcmp(before, "blocked") == 0 ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
  errno = EDOM;
  /* Toward zero; the kernel gives a handler the default and the interrupted code its own again. */
  unsigned toward_zero = 0x1f80u | 0x6000u;
  __asm__ volatile("ldmxcsr %0" : : "m"(toward_zero));
  if (sigsetjmp(back, 1) == 0) {
    deed();
  } else {
    say("jumped back\n");
  }
  say("after: mask %lx rounding %x handler called %d times\n", current_mask(), rounding_state(), deliveries);
  sigset_t pending;
  sigpending(&pending);
  say("after: pending %d\n", sigismember(&pending, number));
  say_disposition("after");
  if (has_flag("resethand")) {
    deed();
    say("survived the second time\n");
  }
  return unused;
}

static void* other_thread_main(void* unused) {
  scene(NULL);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void install_agent(void) {
#ifdef WITH_AGENT
  stackd_install();
#else
  victim_check(false, "the agent is not linked in");
#endif
}

static int signal_number(const char* name) {
  static const char* const names[] = {"SEGV", "BUS", "ILL", "FPE", "ABRT", "TRAP", "SYS", "RTMIN"};
  const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGRTMIN};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    if (strcmp(name, names[i]) == 0) return numbers[i];
  }
  victim_check(false, name);
  return 0;
}

int main(int argc, char** argv) {
  const char* agent = "";
  for (int i = 1; i < argc; ++i) {
    char* value = strchr(argv[i], '=');
    value = value == NULL ? argv[i] + strlen(argv[i]) : value + 1;
    if (strncmp(argv[i], "signal=", 7) == 0) number = signal_number(value);
    if (strncmp(argv[i], "way=", 4) == 0) way = value;
    if (strncmp(argv[i], "thread=", 7) == 0) in_other_thread = strcmp(value, "other") == 0;
    if (strncmp(argv[i], "before=", 7) == 0) before = value;
    if (strncmp(argv[i], "flags=", 6) == 0) flags = value;
    if (strncmp(argv[i], "agent=", 6) == 0) agent = value;
  }
  atexit(at_exit);
  if (strcmp(agent, "first") == 0) install_agent();
  say_disposition("start");
  install();
  if (strcmp(agent, "last") == 0) install_agent();
  for (int i = 1; i < argc; ++i) crash_heed(argv[i]);
  say_disposition("installed");

  if (in_other_thread) {
    /* What is sent to the process goes to a thread that does not block it: not to this one. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t thread;
    victim_check(pthread_create(&thread, NULL, other_thread_main, NULL) == 0, "pthread_create");
    pthread_join(thread, NULL);
  } else {
    scene(NULL);
  }
  return kFinalExitCode;
}

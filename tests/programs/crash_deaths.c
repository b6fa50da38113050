/* Dies in the way that the first argument names: in the main thread, in another one ("thread" behind it) or in eight at
 * once ("threads"). The functions that lead there are few and have names; the test looks for them.
 *
 * Waits for the agent first with "await", for a line on stdin with "told". */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/programs/crash.h"
#include "tests/programs/victim.h"

static char** words; /* behind the name of the death */

/* Read by the test from a file, after the process is gone: how deep the recursion was, and when it began to die (ns). */
static volatile long* depth_file;

static void map_depth_file(void) {
  const char* path = getenv("CRASH_DEPTH_FILE");
  static long nobody_asks[2];
  depth_file = nobody_asks;
  if (path == NULL) return;
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  victim_check(fd >= 0 && ftruncate(fd, 4096) == 0, path);
  depth_file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  victim_check(depth_file != MAP_FAILED, "mmap");
  close(fd);
}

/* Recursion without end is what this is for. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winfinite-recursion"
VICTIM_NOINLINE static long descend(long depth) {
  volatile char frame[256];
  frame[0] = (char)depth;
  *depth_file = depth;
  return descend(depth + 1) + frame[0];
}

VICTIM_NOINLINE static long ping(long depth);
VICTIM_NOINLINE static long pong(long depth) {
  volatile char frame[128];
  frame[0] = 1;
  return ping(depth + 1) + frame[0];
}
VICTIM_NOINLINE static long ping(long depth) {
  volatile char frame[64];
  *depth_file = depth;
  frame[0] = 1;
  return pong(depth) + frame[0];
}
#pragma GCC diagnostic pop

static char* nowhere;

static void overflow(void) { printf("%ld\n", descend(1)); }
static void overflow_of_two(void) { printf("%ld\n", ping(1)); }

/* A frame as large as the stack: the first touch is far below whatever guards its end. */
VICTIM_NOINLINE static void one_big_frame(void) {
  volatile char* bottom = __builtin_alloca(8 << 20);
  bottom[0] = 1;
}

static void null_pointer(void) { *(volatile int*)(nowhere + 0x18) = 1; }
static void wild_pointer(void) { *(volatile int*)(nowhere + 0x123456789000) = 1; }
static void non_canonical(void) { *(volatile int*)(nowhere + 0x4141414141414141) = 1; }
static void write_to_constant(void) { *(volatile char*)(nowhere + (uintptr_t)"constant") = 1; }
static void write_to_code(void) { *(volatile char*)(nowhere + (uintptr_t)write_to_constant) = 1; }

static void use_after_unmap(void) {
  char* page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(page, 1 << 20);
  *(volatile char*)page = 1;
}

static void stack_pointer_garbage(void) {
  __asm__ volatile("mov $0x7654321000, %%rsp\npush %%rax" : : : "memory");
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void call(uintptr_t address) {
  ((void (*)(void))address)();
  VICTIM_NOT_A_TAIL_CALL();
}

static void jump_to_null(void) {
  call((uintptr_t)nowhere);
  VICTIM_NOT_A_TAIL_CALL();
}

static char not_code[64] = "\xc3";
static void jump_to_data(void) {
  call((uintptr_t)not_code);
  VICTIM_NOT_A_TAIL_CALL();
}

static void jump_to_nothing(void) {
  call((uintptr_t)nowhere + 0x7654321000);
  VICTIM_NOT_A_TAIL_CALL();
}

static void double_free(void) {
  void* volatile block = malloc(100);
  free(block);
  free(block);
  VICTIM_NOT_A_TAIL_CALL();
}

static void free_of_no_block(void) {
  void* volatile block = (char*)malloc(100) + 24;
  free(block);
  VICTIM_NOT_A_TAIL_CALL();
}

static void too_much_for_the_buffer(void) {
  char buffer[16];
  volatile size_t size = 64;
  memcpy(buffer, words, size);
  printf("%s", buffer);
}

/* The canary, but not what the caller must return through. */
VICTIM_NOINLINE static void smash(char* buffer) {
  for (volatile int i = 0; i < 32; ++i) buffer[i] = 'x';
}
VICTIM_NOINLINE static void stack_smashing(void) {
  char buffer[16];
  smash(buffer);
  VICTIM_NOT_A_TAIL_CALL();
}

static void failed_assertion(void) {
  int answer = (int)strlen(words[-1]);
  assert(answer == 42 && "the answer");
}

static void call_abort(void) { abort(); }
/* The first process of a PID namespace survives it. */
static void raise_segv(void) { raise(SIGSEGV); }

static void divide(void) {
  volatile int dividend = 7, zero = 0;
  printf("%d\n", dividend / zero);
}

static void illegal(void) { __builtin_trap(); }
static void breakpoint(void) { __asm__ volatile("int3"); }

static void truncated_file(void) {
  int fd = memfd_create("short", MFD_CLOEXEC);
  char* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  page[0] = 1;
}

static void install_filter(struct sock_filter* program, size_t count) {
  struct sock_fprog whole = {.len = (unsigned short)count, .filter = program};
  victim_check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  victim_check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) == 0, "seccomp");
}

static void forbidden_call(void) {
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sysfs, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  install_filter(program, sizeof program / sizeof *program);
  syscall(SYS_sysfs, 1, 2, 3);
}

static void sent_by_another(void) {
  pid_t parent = getpid();
  pid_t child = fork();
  if (child == 0) {
    kill(parent, SIGABRT);
    _exit(0);
  }
  while (waitpid(child, NULL, 0) < 0) {
  }
}

/* Faults when the process has nothing left of something. */

static void set_limit(int resource, rlim_t value) {
  struct rlimit limit = {value, value};
  victim_check(setrlimit(resource, &limit) == 0, "setrlimit");
}

static void no_address_space(void) {
  set_limit(RLIMIT_AS, 1 << 20);
  victim_check(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, "mmap is still allowed");
  null_pointer();
}

static void no_fd(void) {
  set_limit(RLIMIT_NOFILE, 512);
  while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
  }
  victim_check(errno == EMFILE, "the fd table is not full");
  null_pointer();
}

static void no_pending_signal(void) {
  set_limit(RLIMIT_SIGPENDING, 0);
  victim_check(sigqueue(getpid(), SIGRTMAX, (union sigval){0}) < 0 && errno == EAGAIN, "sigqueue still works");
  null_pointer();
}

static void no_process(void) {
  victim_check(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0, "setresuid");
  /* Or it leaves no core, which is not what this is about. */
  prctl(PR_SET_DUMPABLE, 1);
  set_limit(RLIMIT_NPROC, 1);
  victim_check(fork() < 0 && errno == EAGAIN, "fork still works");
  null_pointer();
}

static long read_number(const char* path) {
  char line[64] = "";
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  victim_check(fd >= 0 && read(fd, line, sizeof line - 1) > 0, path);
  close(fd);
  return strtol(line, NULL, 10);
}

/* Allocates until the memory cgroup has less than 64 pages left. What the kernel keeps for a process, which counts too, it
 * takes in blocks of several pages. The words: the files with its limit and its usage. */
static void no_memory(void) {
  long limit = read_number(words[0]);
  victim_check(limit > 0 && limit < 1l << 30, "the cgroup has no limit");
  char* all = mmap(NULL, (size_t)limit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  victim_check(all != MAP_FAILED, "mmap");
  for (long i = 0; read_number(words[1]) < limit - (64 << 12); i += 4096) {
    victim_check(i < limit, "the cgroup does not fill");
    all[i] = 1;
  }
  null_pointer();
}

/* From here on the kernel kills this thread's process for any system call but those in words (numbers). */
static void only_listed_calls(void) {
  enum { kMaxCalls = 100 };
  struct sock_filter program[2 * kMaxCalls + 2] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  size_t count = 1;
  for (char** word = words; *word != NULL && strcmp(*word, "await") != 0; ++word) {
    program[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(*word), 0, 1);
    program[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  program[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  install_filter(program, count);
  null_pointer();
}

static const struct {
  const char* name;
  void (*die)(void);
} deaths[] = {
    {"overflow", overflow},
    {"overflow_of_two", overflow_of_two},
    {"one_big_frame", one_big_frame},
    {"null_pointer", null_pointer},
    {"wild_pointer", wild_pointer},
    {"non_canonical", non_canonical},
    {"write_to_constant", write_to_constant},
    {"write_to_code", write_to_code},
    {"use_after_unmap", use_after_unmap},
    {"stack_pointer_garbage", stack_pointer_garbage},
    {"jump_to_null", jump_to_null},
    {"jump_to_data", jump_to_data},
    {"jump_to_nothing", jump_to_nothing},
    {"double_free", double_free},
    {"free_of_no_block", free_of_no_block},
    {"too_much_for_the_buffer", too_much_for_the_buffer},
    {"stack_smashing", stack_smashing},
    {"failed_assertion", failed_assertion},
    {"call_abort", call_abort},
    {"raise_segv", raise_segv},
    {"divide", divide},
    {"illegal", illegal},
    {"breakpoint", breakpoint},
    {"truncated_file", truncated_file},
    {"forbidden_call", forbidden_call},
    {"sent_by_another", sent_by_another},
    {"no_address_space", no_address_space},
    {"no_fd", no_fd},
    {"no_pending_signal", no_pending_signal},
    {"no_process", no_process},
    {"no_memory", no_memory},
    {"only_listed_calls", only_listed_calls},
};

static void (*chosen)(void);

VICTIM_NOINLINE static void die_as_told(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  depth_file[1] = now.tv_sec * 1000000000l + now.tv_nsec;
  chosen();
  VICTIM_NOT_A_TAIL_CALL();
}

static pthread_barrier_t all_there;

static void* thread_main(void* unused) {
  pthread_barrier_wait(&all_there);
  die_as_told();
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void die_in_threads(int count) {
  static victim_thread threads[8];
  pthread_barrier_init(&all_there, NULL, (unsigned)count);
  for (int i = 0; i < count; ++i) victim_start(&threads[i], "dies", thread_main, NULL, 256 << 10);
  for (int i = 0; i < count; ++i) pthread_join(threads[i].handle, NULL);
}

int main(int argc, char** argv) {
  victim_check(argc > 1, "usage: crash_deaths NAME [thread|threads] [words] [await]");
  for (size_t i = 0; i < sizeof deaths / sizeof *deaths; ++i) {
    if (strcmp(deaths[i].name, argv[1]) == 0) chosen = deaths[i].die;
  }
  victim_check(chosen != NULL, argv[1]);
  int count = argc > 2 && strcmp(argv[2], "thread") == 0 ? 1 : argc > 2 && strcmp(argv[2], "threads") == 0 ? 8 : 0;
  words = argv + 2 + (count > 0);
  map_depth_file();
  for (int i = 2; i < argc; ++i) crash_heed(argv[i]);
  if (count > 0) {
    die_in_threads(count);
  } else {
    die_as_told();
  }
  return 0;
}

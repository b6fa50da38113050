// Dies, or does not, in a way that is asked for.
//
//     crash_victim HOW ACTION WHERE [WAIT_S]
//
// HOW is what goes wrong, ACTION what the program has set for the signal, WHERE the thread: main, thread, or together (two
// threads at once). Or it is a thread while main ends the process (return, exit, _exit, exec). It waits first, so that the
// agent is connected.
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "stackd/ring_abi.h"

namespace {

volatile int zero = 0;
int* volatile null_pointer = nullptr;
char* page = nullptr;
thread_local sigjmp_buf recovery;
int rounds = 1;

__attribute__((noinline)) int Recurse(int depth) {
  volatile char frame[200];
  frame[0] = static_cast<char>(depth);
  return (depth < 0 ? 0 : Recurse(depth + 1)) + frame[0];
}

void Sigsys() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{4, filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  syscall(SYS_getppid);
}

void Bus() {
  char path[] = "/tmp/crash_victim.XXXXXX";
  int fd = mkstemp(path);
  unlink(path);
  if (ftruncate(fd, 4096) != 0) _exit(11);
  auto* memory = static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  if (ftruncate(fd, 0) != 0) _exit(11);
  memory[0] = 1;
}

// What the agent writes its records to.
std::vector<std::pair<char*, size_t>> RingMappings() {
  std::vector<std::pair<char*, size_t>> mappings;
  FILE* maps = fopen("/proc/self/maps", "re");
  char line[512];
  while (fgets(line, sizeof(line), maps) != nullptr) {
    unsigned long start, end;
    if (strstr(line, "stackd-ring") == nullptr || sscanf(line, "%lx-%lx", &start, &end) != 2) continue;
    mappings.emplace_back(reinterpret_cast<char*>(start), end - start);
  }
  fclose(maps);
  return mappings;
}

// Whether the agent's own thread has said that it sleeps, and is in the call.
bool HelperSleeps(const char* ring) {
  const auto* header = reinterpret_cast<const stackd_ring_header*>(ring);
  if (__atomic_load_n(&header->helper_sleeping, __ATOMIC_SEQ_CST) == 0) return false;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, stat;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "stackd-agent") continue;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    return stat.find(") S ") != std::string::npos;
  }
  return false;
}

// When the agent is connected and its own thread, which would miss the ring too, sleeps.
void UnmapRing() {
  for (;;) {
    const auto mappings = RingMappings();
    if (!mappings.empty() && HelperSleeps(mappings[0].first)) {
      for (const auto& [start, size_bytes] : mappings) munmap(start, size_bytes);
      return;
    }
    sched_yield();
  }
}

// A fault of the agent's own is not for the program's handler.
void AbortWithoutRing() {
  UnmapRing();
  signal(SIGSEGV, [](int) { _exit(77); });
  abort();
}

int CountMappings() {
  FILE* maps = fopen("/proc/self/maps", "re");
  int lines = 0;
  for (int c; (c = fgetc(maps)) != EOF;) lines += c == '\n';
  fclose(maps);
  return lines;
}

// Prints how many of 300 threads had an alternate stack when they began, and how many mappings are left of them.
void CountAlternateStacks() {
  static std::atomic<int> with_stack{0};
  auto body = [](void*) -> void* {
    stack_t stack{};
    if (sigaltstack(nullptr, &stack) == 0 && stack.ss_flags == 0 && stack.ss_size >= 48u << 10) with_stack++;
    return nullptr;
  };
  auto churn = [body](int times) {
    for (int i = 0; i < times; i++) {
      pthread_t threads[50];
      for (auto& thread : threads) pthread_create(&thread, nullptr, body, nullptr);
      for (auto& thread : threads) pthread_join(thread, nullptr);
    }
  };
  churn(1);
  int before = CountMappings();
  churn(5);
  printf("%d stacks, %d mappings more\n", with_stack.load(), CountMappings() - before);
}

// A thread that dies of any system call that is not on the list of crash handlers (agent/sys/syscalls.h). With
// `read_memory_errno`, process_vm_readv is refused, as some container runtimes do.
void CrashUnderSeccomp(unsigned read_memory_errno) {
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  auto answer = [&filter](unsigned number, unsigned action) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, action));
  };
  if (read_memory_errno != 0) answer(SYS_process_vm_readv, SECCOMP_RET_ERRNO | read_memory_errno);
  for (unsigned number :
       {SYS_getpid,         SYS_gettid,       SYS_arch_prctl,        SYS_clock_gettime, SYS_prctl,   SYS_process_vm_readv,
        SYS_rt_sigprocmask, SYS_futex,        SYS_rt_sigreturn,      SYS_fstat,         SYS_pread64, SYS_sendto,
        SYS_ppoll,          SYS_rt_sigaction, SYS_rt_tgsigqueueinfo, SYS_pwrite64,      SYS_openat,  SYS_close,
        SYS_mkdir,          SYS_rename,       SYS_newfstatat,        SYS_fchmod}) {
    answer(number, SECCOMP_RET_ALLOW);
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(14);
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) _exit(14);
  *null_pointer = 1;
}

void CrashInVfork() {
  pid_t pid = vfork();
  if (pid == 0) {
    *null_pointer = 1;
    _exit(1);
  }
  int status;
  waitpid(pid, &status, 0);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV) _exit(13);
}

void CrashInFork() {
  pid_t pid = fork();
  if (pid == 0) *null_pointer = 1;
  int status;
  waitpid(pid, &status, 0);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV) _exit(13);
}

void Limit(int resource, rlim_t value) {
  rlimit limit{value, value};
  setrlimit(resource, &limit);
}

void CrashWithoutFds() {
  Limit(RLIMIT_NOFILE, 300);
  while (dup(0) >= 0) continue;
  *null_pointer = 1;
}

void Queue(int signal_number) {
  sigval value{};
  value.sival_int = 77;
  sigqueue(getpid(), signal_number, value);
}

// A fault between two uses of a register of 32 bytes, whose upper half only the extended state has.
__attribute__((target("avx"))) void WriteBetweenUsesOfWideRegister() {
  const uint64_t before[4] = {1, 2, 3, 4};
  uint64_t after[4] = {};
  asm volatile("vmovdqu %[before], %%ymm7\n movb $1, (%[page])\n vmovdqu %%ymm7, %[after]"
               : [after] "=m"(after)
               : [before] "m"(before), [page] "r"(page)
               : "xmm7", "memory");
  if (memcmp(before, after, sizeof(before)) != 0) _exit(13);
}

// What goes wrong, and the signal that comes of it.
struct Cause {
  int signal_number;
  std::function<void()> body;
};

const std::map<std::string, Cause>& Causes() {
  static const std::map<std::string, Cause> causes = [] {
    std::map<std::string, Cause> all = {
        {"null", {SIGSEGV, [] { *null_pointer = 1; }}},
        {"protected", {SIGSEGV, [] { *const_cast<volatile char*>(page) = 1; }}},
        {"wide", {SIGSEGV, WriteBetweenUsesOfWideRegister}},
        {"jump", {SIGSEGV, [] { reinterpret_cast<void (*)()>(null_pointer)(); }}},
        {"noncanonical", {SIGSEGV, [] { *reinterpret_cast<volatile char*>(0x8000000000000000ull + zero) = 1; }}},
        {"overflow", {SIGSEGV, [] { Recurse(0); }}},
        {"sp", {SIGSEGV, [] { asm volatile("mov $0x1234, %rsp; push %rax"); }}},
        {"bus", {SIGBUS, Bus}},
        {"ill", {SIGILL, [] { asm volatile("ud2"); }}},
        {"fpe", {SIGFPE, [] { zero = 100 / zero; }}},
        {"trap", {SIGTRAP, [] { asm volatile("int3"); }}},
        {"sys", {SIGSYS, Sigsys}},
        {"abort", {SIGABRT, [] { abort(); }}},
        {"throw", {SIGABRT, [] { throw std::runtime_error("secret"); }}},
        {"thread",
         {SIGSEGV,
          [] {
            pthread_t thread;
            pthread_create(&thread, nullptr, [](void* nothing) { return nothing; }, nullptr);
            pthread_join(thread, nullptr);
          }}},
        {"null_once",
         {SIGSEGV,
          [] {
            if (sigsetjmp(recovery, 1) == 0) *null_pointer = 1;
            kill(getpid(), SIGTERM);
          }}},
        {"nothing", {SIGSEGV, [] {}}},
        {"exit", {SIGSEGV, [] { exit(5); }}},
        {"unmapped_ring",
         {SIGSEGV,
          [] {
            UnmapRing();
            *null_pointer = 1;
          }}},
        {"unmapped_ring_abort", {SIGABRT, AbortWithoutRing}},
        {"altstacks", {SIGSEGV, CountAlternateStacks}},
        {"seccomp", {SIGSEGV, [] { CrashUnderSeccomp(0); }}},
        {"seccomp_no_read", {SIGSEGV, [] { CrashUnderSeccomp(EPERM); }}},
        {"vfork", {SIGSEGV, CrashInVfork}},
        {"fork", {SIGSEGV, CrashInFork}},
        {"no_fds", {SIGSEGV, CrashWithoutFds}},
        {"no_pending",
         {SIGSEGV,
          [] {
            Limit(RLIMIT_SIGPENDING, 0);
            *null_pointer = 1;
          }}},
        {"no_pending_abort",
         {SIGABRT,
          [] {
            Limit(RLIMIT_SIGPENDING, 0);
            abort();
          }}},
        {"no_memory",
         {SIGSEGV,
          [] {
            Limit(RLIMIT_AS, 1);
            *null_pointer = 1;
          }}},
    };
    for (auto [name, number] : std::initializer_list<std::pair<std::string, int>>{{"SEGV", SIGSEGV},
                                                                                  {"BUS", SIGBUS},
                                                                                  {"ILL", SIGILL},
                                                                                  {"FPE", SIGFPE},
                                                                                  {"TRAP", SIGTRAP},
                                                                                  {"SYS", SIGSYS},
                                                                                  {"ABRT", SIGABRT}}) {
      all["raise_" + name] = {number, [number] { raise(number); }};
      all["kill_" + name] = {number, [number] { kill(getpid(), number); }};
      all["queue_" + name] = {number, [number] { Queue(number); }};
    }
    return all;
  }();
  return causes;
}

using Handler = void (*)(int, siginfo_t*, void*);

// What a handler does.
const std::map<std::string, Handler> kHandlers = {
    {"returns", [](int, siginfo_t*, void*) {}},
    {"longjmps", [](int, siginfo_t*, void*) { siglongjmp(recovery, 1); }},
    {"repairs", [](int, siginfo_t*, void*) { mprotect(page, 4096, PROT_READ | PROT_WRITE); }},
    {"_exits", [](int, siginfo_t*, void*) { _exit(3); }},
    {"exits", [](int, siginfo_t*, void*) { exit(4); }},
    {"resets", [](int signal_number, siginfo_t*, void*) { signal(signal_number, SIG_DFL); }},
    {"reraises",
     [](int signal_number, siginfo_t*, void*) {
       signal(signal_number, SIG_DFL);
       raise(signal_number);
     }},
    {"aborts",
     [](int, siginfo_t*, void*) {
       signal(SIGABRT, SIG_DFL);
       abort();
     }},
    {"crashes", [](int, siginfo_t*, void*) { asm volatile("ud2"); }},
    {"execs", [](int, siginfo_t*, void*) { execl("/bin/sh", "sh", "-c", "exit 9", nullptr); }},
    {"killed", [](int, siginfo_t*, void*) { kill(getpid(), SIGKILL); }},
};

void SetAction(const std::string& action, int signal_number) {
  if (action == "default") return;
  if (action == "ignore") {
    signal(signal_number, SIG_IGN);
    return;
  }
  struct sigaction now{};
  std::string name = action;
  for (auto [suffix, flags] : std::initializer_list<std::pair<std::string, int>>{
           {"+onstack", SA_ONSTACK}, {"+resethand", static_cast<int>(SA_RESETHAND)}, {"+nodefer", SA_NODEFER}}) {
    size_t at = name.find(suffix);
    if (at == std::string::npos) continue;
    name.erase(at, suffix.size());
    now.sa_flags |= flags;
  }
  now.sa_sigaction = kHandlers.at(name);
  now.sa_flags |= SA_SIGINFO;
  sigaction(signal_number, &now, nullptr);
  struct sigaction found{};
  sigaction(signal_number, nullptr, &found);
  if (found.sa_sigaction != now.sa_sigaction) _exit(12);
}

const Cause* cause;

// Not a local variable: siglongjmp() would undo it.
thread_local int round_of_thread = 0;

std::atomic<pid_t> crashing_tid = 0;

// Until the thread that crashes waits in a handler: it sleeps with all signals blocked.
void AwaitHandler() {
  while (crashing_tid == 0) sched_yield();
  for (bool sleeps = false, blocks = false; !sleeps || !blocks;) {
    std::ifstream status("/proc/self/task/" + std::to_string(crashing_tid) + "/status");
    sleeps = blocks = false;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("State:")) sleeps = line.substr(6).contains('S');
      if (line.starts_with("SigBlk:")) blocks = (std::stoull(line.substr(7), nullptr, 16) >> (SIGUSR1 - 1) & 1) != 0;
    }
  }
}

void* Run(void* barrier) {
  crashing_tid = gettid();
  if (barrier != nullptr) pthread_barrier_wait(static_cast<pthread_barrier_t*>(barrier));
  for (; round_of_thread < rounds; round_of_thread++) {
    if (sigsetjmp(recovery, 1) == 0) {
      cause->body();
      if (rounds > 1) mprotect(page, 4096, PROT_READ);
    }
  }
  return nullptr;
}

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  if (const char* text = getenv("ROUNDS")) rounds = atoi(text);
  page = static_cast<char*>(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  cause = &Causes().at(argv[1]);
  SetAction(argv[2], cause->signal_number);
  if (argc > 4) usleep(static_cast<useconds_t>(atof(argv[4]) * 1e6));
  double begin_s = Seconds();
  std::string where = argv[3];
  if (where == "main") {
    Run(nullptr);
  } else if (where == "return" || where == "exit" || where == "_exit" || where == "exec") {
    pthread_t thread;
    pthread_create(&thread, nullptr, Run, nullptr);
    AwaitHandler();
    if (where == "exit") exit(6);
    if (where == "_exit") _exit(6);
    if (where == "exec") execl("/bin/true", "true", nullptr);
    return 6;
  } else {
    int count = where == "together" ? 2 : 1;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(count));
    pthread_t threads[2];
    for (int i = 0; i < count; i++) pthread_create(&threads[i], nullptr, Run, &barrier);
    for (int i = 0; i < count; i++) pthread_join(threads[i], nullptr);
  }
  if (rounds > 1) printf("%.0f ns a round\n", (Seconds() - begin_s) / rounds * 1e9);
  printf("survived\n");
  return 0;
}

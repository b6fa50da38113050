// Programs that a badly timed signal would break. Each runs for some seconds, checks its own invariants all along, prints
// "ok" and exits with 0. Any other end is the agent's fault (race_matrix_test.py runs them under continuous dumps).
//
//     victims CASE SECONDS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <immintrin.h>
#include <limits.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace {

constexpr int kDumpSignal = 34;

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double end_s;
bool Over() { return Now() >= end_s; }

#define REQUIRE(condition)                                                               \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      fprintf(stderr, "line %d: %s is false (errno %d)\n", __LINE__, #condition, errno); \
      _exit(10);                                                                         \
    }                                                                                    \
  } while (false)

void OnThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; i++) threads.emplace_back(body, i);
  for (auto& thread : threads) thread.join();
}

void Malloc() {
  OnThreads(4, [](int seed) {
    unsigned state = static_cast<unsigned>(seed) + 1;
    std::vector<std::pair<unsigned char*, size_t>> blocks(64);
    while (!Over()) {
      auto& [block, size] = blocks[rand_r(&state) % blocks.size()];
      for (size_t i = 0; i < size; i++) REQUIRE(block[i] == static_cast<unsigned char>(size));
      free(block);
      size = static_cast<size_t>(rand_r(&state)) % (200u << rand_r(&state) % 10);
      block = static_cast<unsigned char*>(malloc(size));
      memset(block, static_cast<unsigned char>(size), size);
    }
    for (auto& [block, size] : blocks) free(block);
  });
}

void Dlopen() {
  OnThreads(3, [](int which) {
    while (!Over()) {
      if (which == 0) {
        int objects = 0;
        dl_iterate_phdr([](dl_phdr_info*, size_t, void* count) { return ++*static_cast<int*>(count), 0; }, &objects);
        REQUIRE(objects > 3);
        continue;
      }
      void* library = dlopen(which == 1 ? "libz.so.1" : "libanl.so.1", RTLD_NOW);
      REQUIRE(library != nullptr);
      dlclose(library);
    }
  });
}

int WaitFor(pid_t pid) {
  int status;
  pid_t got;
  do {
    got = waitpid(pid, &status, 0);
  } while (got < 0 && errno == EINTR);
  REQUIRE(got == pid);
  return status;
}

void Fork() {
  OnThreads(2, [](int) {
    while (!Over()) {
      pid_t pid = fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        void* memory = malloc(1000);
        std::thread([] {}).join();
        free(memory);
        _exit(7);
      }
      int status = WaitFor(pid);
      REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
  });
}

// Children that live long enough to be dumped themselves.
void ForkLong() {
  OnThreads(2, [](int) {
    while (!Over()) {
      pid_t pid = fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        double until = Now() + 0.2;
        while (Now() < until) free(malloc(100));
        exit(7);
      }
      int status = WaitFor(pid);
      REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
  });
}

void VforkExec() {
  OnThreads(2, [](int) {
    while (!Over()) {
      pid_t pid = vfork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        execl("/bin/true", "true", static_cast<char*>(nullptr));
        _exit(127);
      }
      REQUIRE(WaitFor(pid) == 0);
    }
  });
}

void Spawn() {
  OnThreads(2, [](int) {
    char name[] = "true";
    char* const arguments[] = {name, nullptr};
    while (!Over()) {
      pid_t pid;
      REQUIRE(posix_spawn(&pid, "/bin/true", nullptr, nullptr, arguments, environ) == 0);
      REQUIRE(WaitFor(pid) == 0);
      REQUIRE(system("exit 3") == 3 << 8);
    }
  });
}

void ThreadChurn() {
  OnThreads(4, [](int) {
    while (!Over()) {
      std::atomic<int> ran{0};
      std::thread([&] { ran = 1; }).join();
      REQUIRE(ran == 1);
    }
  });
}

struct CountsDown {
  int* count;
  ~CountsDown() { --*count; }
};

__attribute__((noinline)) void ThrowAt(int depth, int* alive) {
  ++*alive;
  CountsDown guard{alive};
  if (depth == 0) throw std::runtime_error("depth");
  try {
    ThrowAt(depth - 1, alive);
  } catch (const std::runtime_error& e) {
    if (depth % 2 == 1) throw std::runtime_error(std::string("again ") + e.what());
    throw;
  }
}

void Throw() {
  OnThreads(3, [](int) {
    while (!Over()) {
      int alive = 0;
      bool caught = false;
      try {
        ThrowAt(3, &alive);
      } catch (const std::runtime_error& e) {
        caught = strstr(e.what(), "depth") != nullptr;
      }
      REQUIRE(caught && alive == 0);
    }
  });
}

void Longjmp() {
  OnThreads(2, [](int) {
    volatile int rounds = 0;
    while (!Over()) {
      sigjmp_buf buffer;
      int value = sigsetjmp(buffer, 1);
      if (value == 0) {
        rounds = rounds + 1;
        siglongjmp(buffer, 5);
      }
      REQUIRE(value == 5);
    }
  });
}

struct Fiber {
  ucontext_t main;
  ucontext_t other;
  int64_t steps = 0;
};

void FiberBody(unsigned low, unsigned high) {
  auto* fiber = reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low);
  for (;;) {
    fiber->steps++;
    swapcontext(&fiber->other, &fiber->main);
  }
}

void Fibers() {
  OnThreads(3, [](int which) {
    Fiber fiber;
    getcontext(&fiber.other);
    size_t size = 64 << 10;
    // On the heap, on a mapping of its own, between others.
    fiber.other.uc_stack.ss_sp =
        which == 0 ? malloc(size) : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fiber.other.uc_stack.ss_size = size;
    fiber.other.uc_link = nullptr;
    auto address = reinterpret_cast<uintptr_t>(&fiber);
    makecontext(&fiber.other, reinterpret_cast<void (*)()>(FiberBody), 2, static_cast<unsigned>(address),
                static_cast<unsigned>(address >> 32));
    for (int64_t i = 1; !Over(); i++) {
      swapcontext(&fiber.main, &fiber.other);
      REQUIRE(fiber.steps == i);
    }
  });
}

thread_local volatile int outer_signals;
thread_local volatile int inner_signals;

void NestedSignals() {
  struct sigaction inner{};
  inner.sa_handler = [](int) { inner_signals = inner_signals + 1; };
  inner.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR2, &inner, nullptr);
  struct sigaction outer{};
  outer.sa_handler = [](int) {
    outer_signals = outer_signals + 1;
    int before = inner_signals;
    syscall(SYS_tgkill, getpid(), gettid(), SIGUSR2);
    REQUIRE(inner_signals == before + 1);
  };
  outer.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &outer, nullptr);
  OnThreads(3, [](int) {
    stack_t stack{};
    stack.ss_size = 32 << 10;
    stack.ss_sp = malloc(stack.ss_size);
    REQUIRE(sigaltstack(&stack, nullptr) == 0);
    for (int i = 1; !Over(); i++) {
      syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1);
      REQUIRE(outer_signals == i && inner_signals == i);
      stack_t now{};
      sigaltstack(nullptr, &now);
      REQUIRE(now.ss_sp == stack.ss_sp && now.ss_size == stack.ss_size && now.ss_flags == 0);
    }
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
    free(stack.ss_sp);
  });
}

// setuid() has to reach every thread of the process, the agent's too: glibc sends each a signal and waits.
void Setuid() {
  if (geteuid() != 0) return;
  std::thread busy([] {
    while (!Over()) free(malloc(100));
  });
  uid_t nobody = 65534;
  if (seteuid(nobody) != 0) nobody = 0;  // a user namespace without it: the signals are sent all the same
  while (!Over()) {
    uid_t wanted = geteuid() == 0 ? nobody : 0;
    REQUIRE(seteuid(wanted) == 0);
    for (int tid = getpid(); tid < getpid() + 4; tid++) {
      FILE* file = fopen(("/proc/self/task/" + std::to_string(tid) + "/status").c_str(), "r");
      if (file == nullptr) continue;
      char line[256];
      while (fgets(line, sizeof(line), file) != nullptr) {
        unsigned real;
        unsigned effective;
        if (sscanf(line, "Uid: %u %u", &real, &effective) == 2) REQUIRE(effective == wanted);
      }
      fclose(file);
    }
  }
  busy.join();
  REQUIRE(seteuid(0) == 0);
}

// Closes everything, and opens its own files where the agent's were: what the agent does must not reach them.
void CloseAll() {
  int ours[40];
  while (!Over()) {
    for (int fd = 3; fd < 300; fd++) close(fd);
    for (int& fd : ours) {
      int plain = memfd_create("ours", 0);
      fd = fcntl(plain, F_DUPFD, 195);
      close(plain);
      REQUIRE(fd >= 195 && write(fd, "mine", 4) == 4);
    }
    double until = Now() + 0.3;
    while (Now() < until) usleep(1000);
    for (int fd : ours) {
      char text[5] = {};
      struct stat status;
      REQUIRE(fstat(fd, &status) == 0 && status.st_size == 4 && pread(fd, text, 4, 0) == 4 && strcmp(text, "mine") == 0);
    }
    closefrom(195);
  }
}

// Starts itself again in place for as long as it may; a signal sent to the old program must not reach the new one.
void Exec(const char* self) {
  std::thread([] {
    for (;;) pause();
  }).detach();
  double until = Now() + 0.02;
  while (Now() < until) free(malloc(10));
  if (Over()) return;
  char left[32];
  snprintf(left, sizeof(left), "%.3f", end_s - Now());
  execl(self, "victim-exec", "exec", left, static_cast<char*>(nullptr));
  REQUIRE(false);
}

std::atomic<int> own_signals;

extern "C" sighandler_t __sysv_signal(int, sighandler_t) noexcept;  // signal() of strict C programs

// A program that resets every signal, and one that uses the dump signal itself.
void SignalResets() {
  while (!Over()) {
    for (int s = 1; s <= 64; s++) signal(s, SIG_DFL);
    for (int s = 1; s <= 64; s++) __sysv_signal(s, SIG_DFL);
    struct sigaction now{};
    REQUIRE(sigaction(kDumpSignal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL);
    usleep(500);
    struct sigaction action{};
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      REQUIRE(info->si_value.sival_int == 77);
      own_signals++;
    };
    action.sa_flags = SA_SIGINFO;
    REQUIRE(sigaction(kDumpSignal, &action, nullptr) == 0);
    REQUIRE(sigaction(kDumpSignal, nullptr, &now) == 0 && now.sa_sigaction == action.sa_sigaction);
    int before = own_signals;
    sigval value{.sival_int = 77};
    REQUIRE(sigqueue(getpid(), kDumpSignal, value) == 0);
    double give_up = Now() + 2;
    while (own_signals == before && Now() < give_up) usleep(100);
    REQUIRE(own_signals == before + 1);
  }
}

// Both kinds of cancellation: at a cancellation point, and anywhere.
void Cancel() {
  OnThreads(2, [](int which) {
    int pipe_fds[2];
    REQUIRE(pipe(pipe_fds) == 0);
    while (!Over()) {
      pthread_t thread;
      auto body = which == 0 ? +[](void* fd) -> void* {
        char byte;
        for (;;) {
          ssize_t got = read(*static_cast<int*>(fd), &byte, 1);
          (void)got;
        }
      }
      : +[](void*) -> void* {
          pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
          for (;;) asm volatile("" ::: "memory");
        };
      REQUIRE(pthread_create(&thread, nullptr, body, &pipe_fds[0]) == 0);
      usleep(200);
      REQUIRE(pthread_cancel(thread) == 0);
      void* result;
      REQUIRE(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
  });
}

// One thread that takes the signals of all others, as many servers have it: it must see those that were sent, and no other.
void Sigwait() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::atomic<int> taken{0};
  std::thread waiter([&] {
    for (int round = 0;; round++) {
      int signal_number;
      siginfo_t info;
      timespec timeout = {0, 20'000'000};
      if (round % 3 == 0) {
        REQUIRE(sigwait(&all, &signal_number) == 0);
      } else if (round % 3 == 1) {
        signal_number = sigwaitinfo(&all, &info);
      } else {
        signal_number = sigtimedwait(&all, &info, &timeout);
        if (signal_number < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      }
      if (signal_number < 0 && errno == EINTR) continue;
      REQUIRE(signal_number == SIGUSR1 || signal_number == SIGTERM);
      if (signal_number == SIGTERM) return;
      taken++;
    }
  });
  int sent = 0;
  while (!Over()) {
    kill(getpid(), SIGUSR1);
    sent++;
    double give_up = Now() + 2;
    while (taken < sent && Now() < give_up) usleep(300);
    REQUIRE(taken == sent);
  }
  kill(getpid(), SIGTERM);
  waiter.join();
}

// The process ends when its last thread does: the agent's is not one of them.
void MainExits() {
  for (int i = 0; i < 3; i++) {
    std::thread([] {
      while (!Over()) usleep(1000);
    }).detach();
  }
  puts("ok");
  fflush(stdout);
  pthread_exit(nullptr);
}

__attribute__((noinline)) void UseStack(size_t bytes) {
  auto* memory = static_cast<volatile char*>(alloca(bytes));
  for (size_t i = 0; i < bytes; i += 64) memory[i] = static_cast<char>(i);
  double until = Now() + 0.002;
  while (Now() < until) continue;
  for (size_t i = 0; i < bytes; i += 64) REQUIRE(memory[i] == static_cast<char>(i));
}

// Threads with the smallest stack there is, most of it in use: room for the kernel's signal frame, but not for our handler.
void TinyStacks() {
  size_t frame_bytes = static_cast<size_t>(sysconf(_SC_MINSIGSTKSZ));
  OnThreads(2, [frame_bytes](int) {
    while (!Over()) {
      pthread_attr_t attributes;
      pthread_attr_init(&attributes);
      size_t size = 32 << 10;
      pthread_attr_setstacksize(&attributes, size);
      pthread_t thread;
      auto body = [](void* frame) -> void* {
        pthread_attr_t mine;
        void* low;
        size_t bytes;
        REQUIRE(pthread_getattr_np(pthread_self(), &mine) == 0);
        pthread_attr_getstack(&mine, &low, &bytes);
        pthread_attr_destroy(&mine);
        size_t left = static_cast<size_t>(static_cast<char*>(__builtin_frame_address(0)) - static_cast<char*>(low));
        UseStack(left - reinterpret_cast<size_t>(frame) - 1536);
        return nullptr;
      };
      REQUIRE(pthread_create(&thread, &attributes, body, reinterpret_cast<void*>(frame_bytes)) == 0);
      pthread_join(thread, nullptr);
      pthread_attr_destroy(&attributes);
    }
  });
}

// Threads that have one alternate stack together, for a handler that runs in one of them at a time: so is varnishd. Some
// begin and end meanwhile.
void SharedStacks() {
  constexpr size_t kHandlerBytes = 60 << 10;
  static stack_t shared{};
  shared.ss_size = 80 << 10;
  shared.ss_sp = malloc(shared.ss_size);
  struct sigaction action{};
  action.sa_handler = [](int) { UseStack(kHandlerBytes); };
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR2, &action, nullptr);
  static std::mutex in_handler;
  auto take_stack = [] {
    REQUIRE(sigaltstack(&shared, nullptr) == 0);
    stack_t now{};
    REQUIRE(sigaltstack(nullptr, &now) == 0);
    REQUIRE(now.ss_sp == shared.ss_sp && now.ss_size == shared.ss_size && now.ss_flags == 0);
  };
  OnThreads(12, [&take_stack](int which) {
    take_stack();
    while (!Over()) {
      if (which < 2) {
        std::lock_guard lock(in_handler);
        syscall(SYS_tgkill, getpid(), gettid(), SIGUSR2);
      } else if (which < 4) {
        std::thread(take_stack).join();
      } else if (which < 8) {
        usleep(1000);
      } else {
        UseStack(4000);
      }
    }
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    stack_t before{};
    REQUIRE(sigaltstack(&none, &before) == 0 && before.ss_sp == shared.ss_sp);
    REQUIRE(sigaltstack(nullptr, &before) == 0 && before.ss_flags == SS_DISABLE);
  });
}

// What a signal handler must give back as it found it.
__attribute__((target("avx2"))) void State() {
  OnThreads(3, [](int which) __attribute__((target("avx2"))) {
    stack_t stack{};
    stack.ss_size = 32 << 10;
    stack.ss_sp = malloc(stack.ss_size);
    if (which != 0) REQUIRE(sigaltstack(&stack, nullptr) == 0);
    stack_t stack_before{};
    sigaltstack(nullptr, &stack_before);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGRTMIN + 5);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    const int kRounding[] = {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO};
    fesetround(kRounding[which]);
    feclearexcept(FE_ALL_EXCEPT);
    unsigned mxcsr = _mm_getcsr() | 0x8040;  // flush to zero, denormals are zero
    _mm_setcsr(mxcsr);
    unsigned short control;
    asm volatile("fnstcw %0" : "=m"(control));
    alignas(32) uint64_t in[16];
    alignas(32) uint64_t out[16];
    for (int i = 0; i < 16; i++) in[i] = 0x0123456789abcdefull * static_cast<uint64_t>(i + 1 + which);
    int64_t rounds = 0;
    while (!Over()) {
      errno = 1000 + which;
      uint64_t kept_rbx = 0x5555aaaa5555aaaaull;
      uint64_t red_zone;
      // Values in the high vector registers, an x87 register, flags and the red zone, for some microseconds.
      asm volatile(
          "vmovdqa 0(%[in]), %%ymm4\n vmovdqa 32(%[in]), %%ymm5\n vmovdqa 64(%[in]), %%ymm14\n vmovdqa 96(%[in]), %%ymm15\n"
          "fld1\n fldpi\n"
          "movq %[kept], -64(%%rsp)\n"
          "mov $20000, %%ecx\n stc\n"
          "1: lea -1(%%rcx), %%ecx\n jrcxz 2f\n jnc 3f\n jmp 1b\n"
          "3: ud2\n"
          "2:\n"
          "movq -64(%%rsp), %[red]\n"
          "fldpi\n fcompp\n fnstsw %%ax\n"
          "fstp %%st(0)\n"
          "vmovdqa %%ymm4, 0(%[out])\n vmovdqa %%ymm5, 32(%[out])\n vmovdqa %%ymm14, 64(%[out])\n vmovdqa %%ymm15, "
          "96(%[out])\n"
          : [red] "=&r"(red_zone)
          : [in] "r"(in), [out] "r"(out), [kept] "r"(kept_rbx)
          : "rax", "rcx", "ymm4", "ymm5", "ymm14", "ymm15", "memory", "cc", "st", "st(1)", "st(2)");
      REQUIRE(memcmp(in, out, sizeof(in)) == 0);
      REQUIRE(red_zone == kept_rbx);
      REQUIRE(errno == 1000 + which);
      if (++rounds % 64 == 0) {
        unsigned short control_now;
        asm volatile("fnstcw %0" : "=m"(control_now));
        REQUIRE(control_now == control);
        REQUIRE((_mm_getcsr() & ~0x3fu) == (mxcsr & ~0x3fu) && fegetround() == kRounding[which]);
        sigset_t now;
        pthread_sigmask(SIG_SETMASK, nullptr, &now);
        REQUIRE(sigismember(&now, SIGUSR1) && sigismember(&now, SIGRTMIN + 5) && !sigismember(&now, SIGUSR2) &&
                !sigismember(&now, kDumpSignal));
        stack_t stack_now{};
        sigaltstack(nullptr, &stack_now);
        REQUIRE(stack_now.ss_sp == stack_before.ss_sp && stack_now.ss_size == stack_before.ss_size &&
                stack_now.ss_flags == stack_before.ss_flags);
        REQUIRE(which == 0 || stack_now.ss_sp == stack.ss_sp);
      }
    }
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
    free(stack.ss_sp);
  });
}

// Threads that die of any system call that is not on the handler's list (agent/sys/syscalls.h) or their own; one blocks,
// one runs. With `read_memory_errno`, process_vm_readv is refused, as some container runtimes do.
void Seccomp(int read_memory_errno) {
  static int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  std::atomic<int> ready{0};
  for (int which = 0; which < 2; which++) {
    std::thread([which, read_memory_errno, &ready] {
      std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
      auto answer = [&filter](unsigned number, unsigned action) {
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, action));
      };
      if (read_memory_errno != 0) {
        answer(SYS_process_vm_readv, SECCOMP_RET_ERRNO | static_cast<unsigned>(read_memory_errno));
        answer(SYS_fstat, SECCOMP_RET_ALLOW);
        answer(SYS_pread64, SECCOMP_RET_ALLOW);
      }
      for (unsigned number : {SYS_getpid, SYS_gettid, SYS_arch_prctl, SYS_clock_gettime, SYS_prctl, SYS_process_vm_readv,
                              SYS_rt_sigprocmask, SYS_futex, SYS_rt_sigreturn}) {
        answer(number, SECCOMP_RET_ALLOW);
      }
      if (which == 0) answer(SYS_read, SECCOMP_RET_ALLOW);
      filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
      sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
      REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
      REQUIRE(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
      ready++;
      char byte;
      for (;;) {
        if (which == 0) REQUIRE(read(pipe_fds[0], &byte, 1) == 1);
      }
    }).detach();
  }
  while (!Over()) usleep(1000);
  REQUIRE(ready == 2);
  puts("ok");
  fflush(stdout);
  _exit(0);
}

// Threads whose whole stacks are longer than the ring.
void LongStacks() {
  OnThreads(12, [](int) {
    std::function<void(int)> deeper = [&](int depth) {
      void* volatile pointers[32];
      for (auto& p : pointers) p = const_cast<void**>(&pointers[0]);
      if (depth > 0) {
        deeper(depth - 1);
      } else {
        while (!Over()) usleep(5000);
      }
      for (auto& p : pointers) REQUIRE(p == &pointers[0]);
    };
    deeper(500);
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::map<std::string, std::function<void()>> kCases = {
      {"malloc", Malloc},
      {"dlopen", Dlopen},
      {"fork", Fork},
      {"fork_long", ForkLong},
      {"vfork_exec", VforkExec},
      {"spawn", Spawn},
      {"thread_churn", ThreadChurn},
      {"throw", Throw},
      {"longjmp", Longjmp},
      {"fibers", Fibers},
      {"nested_signals", NestedSignals},
      {"setuid", Setuid},
      {"close_all", CloseAll},
      {"exec", [] { Exec("/proc/self/exe"); }},
      {"signal_resets", SignalResets},
      {"cancel", Cancel},
      {"sigwait", Sigwait},
      {"main_exits", MainExits},
      {"tiny_stacks", TinyStacks},
      {"shared_stacks", SharedStacks},
      {"state", State},
      {"long_stacks", LongStacks},
      {"seccomp", [] { Seccomp(0); }},
      {"seccomp_no_read", [] { Seccomp(EPERM); }},
  };
  end_s = Now() + atof(argv[2]);
  kCases.at(argv[1])();
  puts("ok");
  return 0;
}

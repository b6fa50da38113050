// A symbol worker that was taken over: started and confined as the real one, it serves requests to break out instead.
//
// Each attempt is made twice. A worker that is not confined must be let through, which proves that the attempt works. A
// confined worker must be refused.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>

#include "daemon/base/clock.h"
#include "daemon/confine/kernel_support.h"
#include "daemon/confine/seccomp_filter.h"
#include "daemon/symbolize/worker.h"
#include "daemon/symbolize/worker_process.h"
#include "daemon/symbolize/worker_protocol.h"

namespace stackd {
namespace {

constexpr char kFree[] = "free";
constexpr char kConfined[] = "confined";

// What a worker had before it was confined, and what it wants of the daemon.
struct Aim {
  pid_t daemon;
  int folder;       // an fd of "/etc"
  uint64_t secret;  // an address in the daemon's memory
};

std::string DaemonPath(const Aim& aim, const char* name) { return "/proc/" + std::to_string(aim.daemon) + "/" + name; }

struct Attempt {
  const char* name;
  long (*make)(const Aim& aim);  // as a system call: -1 with errno
};

long g_word = 0;

// System calls by number: libc would choose others.
const Attempt kAttempts[] = {
    {"open a path", [](const Aim&) { return syscall(SYS_open, "/etc/passwd", O_RDONLY); }},
    {"openat a path", [](const Aim&) { return syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY); }},
    {"openat with a folder", [](const Aim& aim) { return syscall(SYS_openat, aim.folder, "passwd", O_RDONLY); }},
    {"openat a path beside a folder", [](const Aim& aim) { return syscall(SYS_openat, aim.folder, "/etc/passwd", 0); }},
    {"openat2",
     [](const Aim&) {
       uint64_t how[3] = {};
       return syscall(SYS_openat2, AT_FDCWD, "/etc/passwd", how, sizeof(how));
     }},
    {"make a file",
     [](const Aim&) { return syscall(SYS_openat, AT_FDCWD, "/dev/shm/stackd-hostile", O_CREAT | O_RDWR, 0600); }},
    {"remove a file", [](const Aim&) { return syscall(SYS_unlink, "/dev/shm/stackd-hostile"); }},
    {"ask for a path",
     [](const Aim&) {
       struct stat status;
       return syscall(SYS_newfstatat, AT_FDCWD, "/etc/passwd", &status, 0);
     }},
    {"read a link",
     [](const Aim&) {
       char target[64];
       return syscall(SYS_readlink, "/proc/self/exe", target, sizeof(target));
     }},
    {"change the folder", [](const Aim&) { return syscall(SYS_chdir, "/"); }},
    {"list a folder",
     [](const Aim& aim) {
       char entries[4096];
       return syscall(SYS_getdents64, aim.folder, entries, sizeof(entries));
     }},
    {"open the daemon's memory", [](const Aim& aim) { return syscall(SYS_open, DaemonPath(aim, "mem").c_str(), O_RDWR); }},
    {"open the daemon's environment",
     [](const Aim& aim) { return syscall(SYS_open, DaemonPath(aim, "environ").c_str(), O_RDONLY); }},
    {"read the daemon's memory",
     [](const Aim& aim) {
       const iovec local{&g_word, sizeof(g_word)}, remote{reinterpret_cast<void*>(aim.secret), sizeof(g_word)};
       return syscall(SYS_process_vm_readv, aim.daemon, &local, 1, &remote, 1, 0);
     }},
    {"write the daemon's memory",
     [](const Aim& aim) {
       const iovec local{&g_word, sizeof(g_word)}, remote{reinterpret_cast<void*>(aim.secret), sizeof(g_word)};
       return syscall(SYS_process_vm_writev, aim.daemon, &local, 1, &remote, 1, 0);
     }},
    {"trace the daemon",
     [](const Aim& aim) {
       // ESRCH (it is not traced yet) shows that the call was allowed. To seize it would stop it at its next signal.
       const long result = syscall(SYS_ptrace, PTRACE_PEEKDATA, aim.daemon, aim.secret, &g_word);
       return result < 0 && errno == ESRCH ? 0 : result;
     }},
    // Signal 0 asks whether the others could be sent.
    {"kill", [](const Aim& aim) { return syscall(SYS_kill, aim.daemon, 0); }},
    {"kill all", [](const Aim&) { return syscall(SYS_kill, -1, 0); }},
    {"tgkill", [](const Aim& aim) { return syscall(SYS_tgkill, aim.daemon, aim.daemon, 0); }},
    {"tkill", [](const Aim& aim) { return syscall(SYS_tkill, aim.daemon, 0); }},
    {"rt_sigqueueinfo",
     [](const Aim& aim) {
       siginfo_t info{};
       info.si_code = SI_QUEUE;
       return syscall(SYS_rt_sigqueueinfo, aim.daemon, 0, &info);
     }},
    {"open a pidfd", [](const Aim& aim) { return syscall(SYS_pidfd_open, aim.daemon, 0); }},
    {"signal by a pidfd",
     [](const Aim&) {
       // EBADF (there is no such fd) shows that the call was allowed.
       const long result = syscall(SYS_pidfd_send_signal, -1, 0, nullptr, 0);
       return result < 0 && errno == EBADF ? 0 : result;
     }},
    // With F_SETSIG and O_ASYNC the kernel would send a signal of choice.
    {"have the kernel signal", [](const Aim& aim) { return syscall(SYS_fcntl, kWorkerSocketFd, F_SETOWN, aim.daemon); }},
    {"choose that signal", [](const Aim&) { return syscall(SYS_fcntl, kWorkerSocketFd, F_SETSIG, SIGKILL); }},
    {"make a socket", [](const Aim&) { return syscall(SYS_socket, AF_INET, SOCK_STREAM, 0); }},
    {"make a local socket", [](const Aim&) { return syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }},
    {"make two sockets",
     [](const Aim&) {
       int sockets[2];
       return syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, sockets);
     }},
    {"make a file in memory", [](const Aim&) { return syscall(SYS_memfd_create, "x", 0); }},
    {"map code",
     [](const Aim&) {
       return reinterpret_cast<long>(
           mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
     }},
    {"turn data into code",
     [](const Aim&) {
       void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       return syscall(SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC);
     }},
    {"start a program",
     [](const Aim&) {
       // ENOENT shows that the call was allowed.
       const char* const nothing[] = {nullptr};
       const long result = syscall(SYS_execve, "/etc/passwd-that-is-not-there", nothing, nothing);
       return result < 0 && errno == ENOENT ? 0 : result;
     }},
    {"fork",
     [](const Aim&) {
       const long child = syscall(SYS_fork);
       if (child == 0) _exit(0);
       return child;
     }},
    {"change limits", [](const Aim& aim) { return syscall(SYS_prlimit64, aim.daemon, RLIMIT_NOFILE, nullptr, nullptr); }},
    {"undo what was given up", [](const Aim&) { return syscall(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0); }},
    {"use a call of 32 bits",
     [](const Aim&) {
       long result;
       // getpid of i386
       asm volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
       if (result >= 0) return result;
       errno = static_cast<int>(-result);
       return -1L;
     }},
};

// --- The worker ---

bool ReadAll(int fd, void* out, size_t size_bytes) {
  for (char* next = static_cast<char*>(out); size_bytes > 0;) {
    const ssize_t n = read(fd, next, size_bytes);
    if (n <= 0) return false;
    next += n;
    size_bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool WriteAll(int fd, std::string_view bytes) { return write(fd, bytes.data(), bytes.size()) == std::ssize(bytes); }

// "asks for too much": for the same debug file again and again.
void AskForEver(int socket) {
  char byte;
  while (WriteAll(socket, FileRequest(0, "nothing")) && ReadAll(socket, &byte, 1)) {
  }
}

// Makes the attempt that the request has instead of a path, and answers with the errno, 0 if it was let through.
int ServeAttempts(Fd socket, Aim aim) {
  RequestHeader header;
  while (ReadAll(socket.get(), &header, sizeof(header))) {
    std::string name(header.path_bytes, '\0');
    if (!ReadAll(socket.get(), name.data(), name.size()) || !ReadAll(socket.get(), &aim.secret, sizeof(aim.secret))) break;
    if (name == "asks for too much") AskForEver(socket.get());
    const auto attempt = std::ranges::find_if(kAttempts, [&](const Attempt& a) { return name == a.name; });
    if (attempt == std::end(kAttempts)) return 1;
    errno = 0;
    const int error = attempt->make(aim) == -1 ? errno : 0;
    SourceLocation location;
    location.frames.push_back({.function = std::to_string(error), .file = {}});
    std::string answer;
    AppendAnswer(0, SymbolQuality::kNone, location, &answer);
    if (!WriteAll(socket.get(), answer)) break;
  }
  return 0;
}

int RunHostileWorker(bool confined) {
  const Aim aim{getppid(), open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0};
  if (confined) return RunConfined(64 << 20, [&](Fd socket, Fd) { return ServeAttempts(std::move(socket), aim); });
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return ServeAttempts(Fd(kWorkerSocketFd), aim);
}

// --- The tests ---

long g_secret = 42;

class HostileWorker {
 public:
  explicit HostileWorker(const char* mode) : process_({64 << 20, {mode}, 20 * kNsPerSecond}) {}

  // How the worker ended, and what it answered.
  WorkerEnd Ask(const std::string& attempt, std::string* answer) {
    const uint64_t secret = reinterpret_cast<uint64_t>(&g_secret);
    const WorkerRequest request{1, STDIN_FILENO, attempt, Phase::kNames, {&secret, 1}};
    return process_.Ask(request, [&](uint32_t, SymbolQuality, const SourceLocation& location) {
      *answer = location.frames.empty() ? "" : location.frames[0].function;
    });
  }
  int ErrnoOf(const std::string& attempt) {
    std::string answer;
    EXPECT_EQ(Ask(attempt, &answer), WorkerEnd::kAnswered) << attempt;
    return atoi(answer.c_str());
  }

 private:
  WorkerProcess process_;
};

class AttemptTest : public testing::TestWithParam<Attempt> {};

TEST_P(AttemptTest, IsRefused) {
  HostileWorker free(kFree), confined(kConfined);
  const std::string name = GetParam().name;
  if (name == "remove a file") free.ErrnoOf("make a file");
  EXPECT_EQ(free.ErrnoOf(name), 0) << name << ": this is no attempt";
  const int error = confined.ErrnoOf(name);
  EXPECT_TRUE(error == EPERM || error == EACCES) << name << ": " << strerror(error);
  EXPECT_EQ(g_secret, name == "write the daemon's memory" ? 0 : 42);
  g_secret = 42;
  unlink("/dev/shm/stackd-hostile");
}

INSTANTIATE_TEST_SUITE_P(All, AttemptTest, testing::ValuesIn(kAttempts), [](const auto& attempt) {
  std::string name = attempt.param.name;
  std::ranges::replace_if(name, [](char c) { return !isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST(HostileWorkerTest, MayNotAskForFilesForEver) {
  std::string answer;
  EXPECT_EQ(HostileWorker(kConfined).Ask("asks for too much", &answer), WorkerEnd::kCrashed);
}

// The exit code of a child that does this; -1 if a signal ended it.
int ExitCodeOf(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(HostileWorkerTest, ServesNothingIfTheKernelDoesNotConfineIt) {
  EXPECT_EQ(ExitCodeOf([] {
              SeccompFilter filter(FilterAnswer::kAllow);
              filter.AllowOnlyWith(SYS_prctl, 0, {PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_SECCOMP});
              if (!filter.Install() || !AskKernelSupport().has_seccomp) return 1;
              std::string answer;
              return HostileWorker(kConfined).Ask("make a file in memory", &answer) == WorkerEnd::kUnconfined ? 0 : 2;
            }),
            0);
}

TEST(HostileWorkerTest, ServesWhereTheKernelKnowsNoConfinementAndThatIsKnown) {
  EXPECT_EQ(ExitCodeOf([] {
              constexpr uint32_t kLandlock[] = {SYS_landlock_create_ruleset};
              SeccompFilter filter(FilterAnswer::kAllow);
              filter.AllowOnlyWith(SYS_prctl, 0, {PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_NO_NEW_PRIVS});
              filter.Add(kLandlock, FilterAnswer::kRefuse);
              if (!filter.Install()) return 1;
              const KernelSupport support = AskKernelSupport();
              if (support.has_seccomp || support.landlock_version != 0) return 2;
              return HostileWorker(kConfined).ErrnoOf("make a file in memory") == 0 ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace stackd

int main(int argc, char** argv) {
  using namespace stackd;
  if (argc > 3 && strcmp(argv[1], kWorkerFlag) == 0) return RunHostileWorker(strcmp(argv[3], kConfined) == 0);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

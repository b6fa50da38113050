#include "daemon/confine/confine_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "daemon/confine/landlock.h"

namespace stackd {
namespace {

// The exit code of a child that does this; -1 if a signal ended it.
int ExitCodeOf(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The errno with which a system call fails, 0 if it does not.
int ErrnoOf(long result) { return result < 0 ? errno : 0; }

// A process that waits to be ended.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

int TraceAnother() {
  const Sleeper other;
  return ErrnoOf(ptrace(PTRACE_SEIZE, other.pid(), 0, 0));
}

int g_word = 1;

int WriteAnother() {
  const Sleeper other;
  int value = 2;
  const iovec local{&value, sizeof(value)}, remote{&g_word, sizeof(g_word)};
  return ErrnoOf(process_vm_writev(other.pid(), &local, 1, &remote, 1, 0));
}

int ChangeNamespace() { return ErrnoOf(unshare(CLONE_NEWNS)); }
int Mount() { return ErrnoOf(unshare(CLONE_NEWNS)) | ErrnoOf(mount("none", "/tmp", "tmpfs", 0, nullptr)); }
int UseIoUring() {
  // With no address for its parameters a kernel that has it says EFAULT.
  return ErrnoOf(syscall(SYS_io_uring_setup, 1, nullptr)) == EPERM ? EPERM : 0;
}

// Root without capabilities is a user like others.
bool DropCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

TEST(ConfineDaemon, RefusesWhatADaemonNeverNeeds) {
  for (const auto attempt : {TraceAnother, WriteAnother, ChangeNamespace, Mount, UseIoUring}) {
    const int free = ExitCodeOf(attempt);
    if (free != 0) continue;  // this user may not even so
    EXPECT_EQ(ExitCodeOf([&] { return RefuseWhatIsNeverNeeded() ? attempt() : 0; }), EPERM);
  }
}

TEST(ConfineDaemon, StillReadsWritesAndStartsPrograms) {
  EXPECT_EQ(ExitCodeOf([] {
              if (!RefuseWhatIsNeverNeeded()) return 1;
              const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
              char byte;
              if (fd < 0 || read(fd, &byte, 1) != 1) return 2;
              return system("exit 7") == 7 << 8 ? 0 : 3;
            }),
            0);
}

int Create(const std::string& path) {
  const int made = ErrnoOf(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  return made != 0 ? made : ErrnoOf(unlink(path.c_str()));
}

int MoveBetween(const std::string& folder) {
  const std::string from = folder + "/from", to = folder + "/to";
  const int made = ErrnoOf(mkdir(from.c_str(), 0700)) | ErrnoOf(mkdir(to.c_str(), 0700)) |
                   ErrnoOf(open((from + "/file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const int moved = ErrnoOf(rename((from + "/file").c_str(), (to + "/file").c_str()));
  return made | moved | ErrnoOf(unlink((to + "/file").c_str())) | ErrnoOf(rmdir(from.c_str())) | ErrnoOf(rmdir(to.c_str()));
}

int Execute(const char* program) {
  return ExitCodeOf([program] {
    // Lists the tests if it is this program, and looks for no file to write.
    char* const environment[] = {nullptr};
    execle(program, program, "--gtest_list_tests", nullptr, environment);
    return errno;
  });
}

TEST(ConfineDaemon, WritesBelowItsFoldersAndExecutesItselfAlone) {
  if (LandlockVersion() < 2) GTEST_SKIP() << "the kernel has no Landlock, or an old one";
  std::string folder = "/tmp/confine_daemon-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::pair<std::function<int()>, int> attempts[] = {
      {[&] { return Create(folder + "/file"); }, 0},
      {[&] { return MoveBetween(folder); }, 0},
      {[] { return ErrnoOf(open("/etc/passwd", O_RDONLY | O_CLOEXEC)); }, 0},
      {[] { return ErrnoOf(open("/dev/null", O_RDWR | O_CLOEXEC)); }, 0},
      {[] { return Execute("/proc/self/exe"); }, 0},
      {[] { return Create("/tmp/confine_daemon_elsewhere"); }, EACCES},
      {[] { return Create("/dev/shm/confine_daemon_elsewhere"); }, EACCES},
      {[] { return Execute("/bin/true"); }, EACCES},
  };
  for (size_t index = 0; index < std::size(attempts); ++index) {
    const auto& [attempt, expected] = attempts[index];
    EXPECT_EQ(ExitCodeOf(attempt), 0) << index;
    EXPECT_EQ(ExitCodeOf([&] { return CloseOtherPaths({.written = {folder}}) ? attempt() : 255; }), expected) << index;
  }
  rmdir(folder.c_str());
}

TEST(ConfineDaemon, ClosesItsMemoryToOthersOfItsUser) {
  for (const bool closed : {false, true}) {
    EXPECT_EQ(ExitCodeOf([closed] {
                if (!DropCapabilities()) return 1;
                if (closed && !CloseOwnMemory()) return 2;
                const std::string path = "/proc/" + std::to_string(getpid()) + "/";
                return ExitCodeOf([&] {
                  const bool reads_memory = open((path + "mem").c_str(), O_RDWR | O_CLOEXEC) >= 0;
                  const bool reads_environment = open((path + "environ").c_str(), O_RDONLY | O_CLOEXEC) >= 0;
                  return 10 + reads_memory + 2 * reads_environment;
                });
              }),
              closed ? 10 : 13);
  }
}

}  // namespace
}  // namespace stackd

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
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

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

#include "daemon/hooks/on_dump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/base/text.h"
#include "daemon/log/log.h"

extern char** environ;

namespace stackd {
namespace {

constexpr size_t kMaxLoggedBytes = 1024;

std::vector<std::string> Environment(const std::string& trigger, const std::string& address) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text(*entry);
    if (!text.starts_with("STACKD_TRIGGER=") && !text.starts_with("STACKD_ADDRESS=")) result.emplace_back(text);
  }
  result.push_back("STACKD_TRIGGER=" + trigger);
  result.push_back("STACKD_ADDRESS=" + address);
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Starts the program in a process group of its own, with the signals of a fresh process; all fds of the daemon are
// close-on-exec. Returns 0 or an errno.
int Spawn(const std::string& program, const std::string& argument, std::vector<std::string> environment, int output,
          pid_t* pid) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t none, pipe;
  sigemptyset(&none);
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &pipe);
  std::vector<std::string> arguments{program, argument};
  int error =
      posix_spawn(pid, program.c_str(), &files, &attributes, Pointers(&arguments).data(), Pointers(&environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

// Reads what is there, keeps the first kMaxLoggedBytes. False at the end.
bool ReadSome(int fd, std::string* text) {
  char bytes[4096];
  ssize_t got = read(fd, bytes, sizeof(bytes));
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  text->append(bytes, std::min(static_cast<size_t>(got), kMaxLoggedBytes - text->size()));
  return true;
}

enum class End { kExited, kTimedOut, kStopped };

// Waits until the process has ended, and not for its children.
End Await(int pid_fd, int output, int stop_event, int64_t timeout_ns, std::string* text) {
  const int64_t end_ns = MonotonicNs() + timeout_ns;
  pollfd fds[] = {{pid_fd, POLLIN, 0}, {stop_event, POLLIN, 0}, {output, POLLIN, 0}};
  for (;;) {
    const int64_t left_ms = (end_ns - MonotonicNs() + kNsPerMs - 1) / kNsPerMs;
    if (left_ms <= 0) return End::kTimedOut;
    if (poll(fds, std::size(fds), static_cast<int>(std::min<int64_t>(left_ms, 1000))) <= 0) continue;
    if (fds[2].revents != 0 && !ReadSome(output, text)) fds[2].fd = -1;
    if (fds[1].revents != 0) return End::kStopped;
    if (fds[0].revents != 0) {
      if (fds[2].fd >= 0) ReadSome(output, text);
      return End::kExited;
    }
  }
}

std::string HowItEnded(End end, int status) {
  if (end == End::kTimedOut) return "killed: its time was over";
  if (end == End::kStopped) return "killed: stackd ends";
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<OnDump>> OnDump::Start(OnDumpOptions options) {
  struct stat status;
  if (options.program.find('/') == std::string::npos) {
    return Error(Code::kInvalidArgument,
                 options.asked_by + " takes the path of a program, with a slash, not " + options.program);
  }
  if (stat(options.program.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
      access(options.program.c_str(), X_OK) != 0) {
    return Error(Code::kInvalidArgument, options.asked_by + ": " + options.program + " is not a program that can be run");
  }
  std::unique_ptr<OnDump> action(new OnDump(std::move(options)));
  action->stop_event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!action->stop_event_.valid()) return Error(Code::kResourceExhausted, std::string("eventfd: ") + strerror(errno));
  action->thread_ = std::thread([a = action.get()] { a->Run(); });
  return action;
}

OnDump::OnDump(OnDumpOptions options) : options_(std::move(options)) {}

OnDump::~OnDump() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  uint64_t one = 1;
  if (stop_event_.valid()) [[maybe_unused]]
    ssize_t written = write(stop_event_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
}

bool OnDump::MayRun() {
  const int64_t now_ns = MonotonicNs();
  if (paid_ns_ > now_ns + (options_.burst - 1) * options_.interval_ns) return false;
  paid_ns_ = std::max(paid_ns_, now_ns) + options_.interval_ns;
  return true;
}

void OnDump::Add(const std::string& dump_name, const std::string& trigger) {
  std::lock_guard lock(mutex_);
  // A rate alone does not bound what waits: programs that take their 30 s pile up.
  if (static_cast<int64_t>(tasks_.size()) >= options_.burst || !MayRun()) {
    dropped_++;
    return;
  }
  tasks_.push_back({dump_name, trigger});
  changed_.notify_one();
}

void OnDump::Run() {
  int64_t dropped_before = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    RunProgram(task);
    if (const int64_t dropped = dropped_.load(); dropped != dropped_before) {
      Log(LogLevel::kWarning, "on-dump program not run: too many dumps", {{"dumps", dropped - dropped_before}});
      dropped_before = dropped;
    }
    lock.lock();
  }
}

void OnDump::RunProgram(const Task& task) {
  const int64_t begin_ns = MonotonicNs();
  runs_++;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    failures_++;
    Log(LogLevel::kWarning, "on-dump program not run", {{"dump", task.dump_name}, {"err", strerror(errno)}});
    return;
  }
  Fd output(ends[0]), input(ends[1]);
  fcntl(input.get(), F_SETFL, 0);  // the program expects one that waits
  pid_t pid;
  if (int error = Spawn(options_.program, task.dump_name, Environment(task.trigger, options_.address), input.get(), &pid)) {
    failures_++;
    Log(LogLevel::kWarning, "on-dump program not run", {{"dump", task.dump_name}, {"err", strerror(error)}});
    return;
  }
  input.Reset();
  Fd pid_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  std::string text;
  // Without an fd to wait with there is nothing to wait for.
  End end =
      pid_fd.valid() ? Await(pid_fd.get(), output.get(), stop_event_.get(), options_.timeout_ns, &text) : End::kTimedOut;
  if (end != End::kExited) kill(-pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  const bool good = end == End::kExited && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!good) failures_++;
  Log(good ? LogLevel::kInfo : LogLevel::kWarning, "on-dump program ended",
      {{"dump", task.dump_name},
       {"end", HowItEnded(end, status)},
       {"ms", (MonotonicNs() - begin_ns) / kNsPerMs},
       {"output", ToValidUtf8(text)}});
}

}  // namespace stackd

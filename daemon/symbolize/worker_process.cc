#include "daemon/symbolize/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// Makes an environment without the daemon's, which may hold passwords. It has the mark of a worker, and switches off the
// agent, which /etc/ld.so.preload may name: the worker is not to be watched.
std::vector<std::string> WorkerEnvironment() { return {std::string(kWorkerEnvironment) + "=1", "STACKD_DISABLE=1"}; }

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This program again, with `socket` as kWorkerSocketFd, and no other fd: in the daemon's log it could say anything. -1 if
// it cannot be started.
pid_t Spawn(std::vector<std::string> arguments, int socket) {
  std::vector<std::string> environment = WorkerEnvironment();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, kWorkerSocketFd);
  posix_spawn_file_actions_addclosefrom_np(&actions, kWorkerSocketFd + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  if (posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, Pointers(arguments).data(),
                  Pointers(environment).data()) != 0) {
    pid = -1;
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

// All bytes, and the fd if it is one.
bool SendWithFd(int socket, std::string_view bytes, int fd, int flags) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | flags) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

WorkerProcess::WorkerProcess(WorkerOptions options) : options_(std::move(options)), debug_folders_(options_.debug_dirs) {}

WorkerProcess::~WorkerProcess() {
  Cancel();
  EndIdle();
}

void WorkerProcess::Cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (socket_.valid()) shutdown(socket_.get(), SHUT_RDWR);
}

bool WorkerProcess::Start() {
  if (getenv(kWorkerEnvironment) != nullptr) return false;  // this is a worker whose main() does not know
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return false;
  Fd ours(sockets[0]), theirs(sockets[1]);
  // Out of the way of the fds that the worker is given.
  Fd given(fcntl(theirs.get(), F_DUPFD_CLOEXEC, kWorkerSocketFd + 1));
  if (!given.valid()) return false;
  std::vector<std::string> arguments = {"stackd", kWorkerFlag, std::to_string(options_.memory_limit_bytes)};
  arguments.insert(arguments.end(), options_.debug_dirs.begin(), options_.debug_dirs.end());
  pid_t pid = Spawn(std::move(arguments), given.get());
  if (pid < 0) return false;
  pid_ = pid;
  buffer_.clear();
  std::lock_guard lock(mutex_);
  socket_ = std::move(ours);
  if (cancelled_) shutdown(socket_.get(), SHUT_RDWR);
  return true;
}

bool WorkerProcess::Send(const WorkerRequest& request) {
  RequestHeader header{.module_id = request.module_id,
                       .path_bytes = static_cast<uint32_t>(std::min<size_t>(request.path.size(), kMaxRequestPathBytes)),
                       .address_count = static_cast<uint32_t>(request.svmas.size()),
                       .phase = request.phase,
                       .padding = {}};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(request.path, 0, header.path_bytes);
  bytes.append(reinterpret_cast<const char*>(request.svmas.data()), request.svmas.size_bytes());

  // A request is smaller than the socket's buffer, and the last one was answered: it is taken whole or the worker is gone.
  return SendWithFd(socket_.get(), bytes, request.module_fd, 0);
}

bool WorkerProcess::SendFile(std::string_view request_body) {
  const std::optional<uint32_t> folder = TakeFolder(&request_body);
  if (!folder) return false;
  const Fd file = debug_folders_.Open(*folder, std::string(request_body));
  // A worker that asks but does not read the answer is not waited for.
  return SendWithFd(socket_.get(), "!", file.get(), MSG_DONTWAIT);
}

WorkerEnd WorkerProcess::ReadAnswers(const WorkerRequest& request, const OnAnswer& on_answer) {
  std::vector<bool> answered(request.svmas.size());
  size_t missing = request.svmas.size();
  size_t files_left = MaxFileRequests(debug_folders_.size(), request.svmas.size());
  char chunk[65536];
  while (missing > 0) {
    pollfd ready{socket_.get(), POLLIN, 0};
    int n_ready = poll(&ready, 1, static_cast<int>(options_.silence_limit_ns / kNsPerMs));
    if (n_ready < 0 && errno == EINTR) continue;
    if (n_ready <= 0) return WorkerEnd::kTimedOut;
    ssize_t n = recv(socket_.get(), chunk, sizeof(chunk), 0);
    if (n <= 0) return WorkerEnd::kCrashed;
    buffer_.append(chunk, n);
    std::string_view rest = buffer_;
    AnswerHeader header;
    while (rest.size() >= sizeof(header)) {
      memcpy(&header, rest.data(), sizeof(header));
      const bool asks_for_file = header.address_index == kFileRequest;
      if (header.body_bytes > kMaxAnswerBodyBytes || (asks_for_file && files_left == 0)) return WorkerEnd::kCrashed;
      if (!asks_for_file && (header.address_index >= answered.size() || answered[header.address_index] ||
                             header.quality > SymbolQuality::kDwarf)) {
        return WorkerEnd::kCrashed;
      }
      if (rest.size() - sizeof(header) < header.body_bytes) break;
      const std::string_view body = rest.substr(sizeof(header), header.body_bytes);
      rest.remove_prefix(sizeof(header) + header.body_bytes);
      if (asks_for_file) {
        files_left--;
        if (!SendFile(body)) return WorkerEnd::kCrashed;
        continue;
      }
      std::optional<SourceLocation> location = ParseAnswerBody(header.frame_count, body);
      if (!location) return WorkerEnd::kCrashed;
      answered[header.address_index] = true;
      missing--;
      on_answer(header.address_index, header.quality, *std::move(location));
    }
    buffer_.erase(0, buffer_.size() - rest.size());
  }
  return buffer_.empty() ? WorkerEnd::kAnswered : WorkerEnd::kCrashed;
}

std::optional<WorkerEnd> WorkerProcess::Reap(WorkerEnd cause) {
  // Not by the socket alone: a worker that was taken over could close it and live on. One that is ending by itself
  // gets the time to say why.
  if (cause == WorkerEnd::kCrashed) {
    constexpr int kTries = 50;
    for (int i = 0; i < kTries; ++i) {
      siginfo_t info{};
      if (waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) != 0) break;
      if (info.si_pid != 0) {
        if (info.si_code == CLD_KILLED && info.si_status == SIGKILL) cause = WorkerEnd::kKilled;
        break;
      }
      poll(nullptr, 0, 1);
    }
  }
  int status = Kill();
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return WorkerEnd::kCancelled;
  }
  if (status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == kWorkerRecycled) return std::nullopt;
  if (status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == kWorkerUnconfined) return WorkerEnd::kUnconfined;
  deaths_.fetch_add(1, std::memory_order_relaxed);
  if (status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == kWorkerOutOfMemory) return WorkerEnd::kOutOfMemory;
  return cause;
}

int WorkerProcess::Kill() {
  kill(pid_, SIGKILL);
  int status = 0;
  pid_t reaped;
  do {
    reaped = waitpid(pid_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  pid_ = -1;
  std::lock_guard lock(mutex_);
  socket_.Reset();
  return reaped > 0 ? status : -1;
}

// Not a death: it was told to, though not in words. It holds nothing but what it read.
void WorkerProcess::EndIdle() {
  if (pid_ > 0) Kill();
}

WorkerEnd WorkerProcess::Ask(const WorkerRequest& request, const OnAnswer& on_answer) {
  while (true) {
    // A worker that was killed while it was idle is not this request's fault.
    if (pid_ > 0) {
      pollfd closed{socket_.get(), POLLIN, 0};
      if (poll(&closed, 1, 0) != 0 || !Send(request)) Reap(WorkerEnd::kCrashed);
    }
    if (pid_ < 0 && (!Start() || !Send(request))) {
      // A worker that could not give up its rights may have ended before the request came.
      const std::optional<WorkerEnd> cause = pid_ > 0 ? Reap(WorkerEnd::kCrashed) : std::nullopt;
      if (cause == WorkerEnd::kUnconfined) return *cause;
      std::lock_guard lock(mutex_);
      return cancelled_ ? WorkerEnd::kCancelled : WorkerEnd::kNotStarted;
    }
    WorkerEnd end = ReadAnswers(request, on_answer);
    if (end == WorkerEnd::kAnswered) return end;
    std::optional<WorkerEnd> cause = Reap(end);
    if (cause) return *cause;
  }
}

}  // namespace stackd

#include "daemon/process/flock_process.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "daemon/base/clock.h"
#include "daemon/process/file_lock_procfs.h"

namespace stackd {
namespace {

// Questions that wait in the kernel at once; more are not answered.
constexpr int kMaxQuestions = 16;

struct Question {
  FileLockLine taken;
  int64_t deadline_ns;
};
static_assert(std::is_trivially_copyable_v<Question>);

// A question, and where its answer is written to.
class Message {
 public:
  Message() {
    header_.msg_iov = &part_;
    header_.msg_iovlen = 1;
    header_.msg_control = control_;
    header_.msg_controllen = sizeof(control_);
  }
  Message(const Message&) = delete;

  Question question{};

  bool Send(int socket, int answer) {
    cmsghdr* rights = CMSG_FIRSTHDR(&header_);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &answer, sizeof(int));
    return sendmsg(socket, &header_, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(question);
  }
  // Where to answer; -1 at the end.
  int Receive(int socket) {
    ssize_t got;
    do {
      got = recvmsg(socket, &header_, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    const cmsghdr* rights = got == sizeof(question) ? CMSG_FIRSTHDR(&header_) : nullptr;
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return -1;
    int answer;
    memcpy(&answer, CMSG_DATA(rights), sizeof(int));
    return answer;
  }

 private:
  iovec part_{&question, sizeof(question)};
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int))] = {};
  msghdr header_{};
};

[[noreturn]] void AnswerQuestions(int socket) {
  prctl(PR_SET_NAME, "stackd-flock", 0, 0, 0);
  for (int running = 0;;) {
    Message message;
    const Fd answer(message.Receive(socket));
    if (!answer.valid()) _exit(0);
    while (running > 0 && waitpid(-1, nullptr, WNOHANG) > 0) running--;
    if (running == kMaxQuestions) continue;
    const pid_t child = fork();
    if (child > 0) running++;
    if (child != 0) continue;
    const StillHolds holds = HasFlock(message.question.taken, message.question.deadline_ns);
    _exit(send(answer.get(), &holds, sizeof(holds), MSG_NOSIGNAL) == sizeof(holds) ? 0 : 1);
  }
}

struct Ends {
  Fd near, far;
};

Ends MakeEnds() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace

std::unique_ptr<FlockProcess> FlockProcess::Start() {
  Ends ends = MakeEnds();
  const pid_t pid = ends.near.valid() ? fork() : -1;
  if (pid < 0) return nullptr;
  if (pid == 0) {
    ends.near.Reset();
    AnswerQuestions(ends.far.get());
  }
  return std::unique_ptr<FlockProcess>(new FlockProcess(std::move(ends.near), pid));
}

FlockProcess::~FlockProcess() {
  socket_.Reset();
  waitpid(pid_, nullptr, 0);
}

StillHolds FlockProcess::HasFlock(const FileLockLine& taken, int64_t deadline_ns) const {
  Ends answer = MakeEnds();
  Message message;
  message.question = {taken, deadline_ns};
  if (!answer.near.valid() || !message.Send(socket_.get(), answer.far.get())) return StillHolds::kNotKnown;
  answer.far.Reset();
  for (;;) {
    const int64_t left_ns = deadline_ns - MonotonicNs();
    if (left_ns <= 0) return StillHolds::kNotKnown;
    pollfd ready{answer.near.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(std::min<int64_t>(left_ns / kNsPerMs + 1, 1000))) <= 0) continue;
    StillHolds holds;
    const bool is_answer = recv(answer.near.get(), &holds, sizeof(holds), MSG_DONTWAIT) == sizeof(holds);
    return is_answer ? holds : StillHolds::kNotKnown;
  }
}

}  // namespace stackd

#include "daemon/collect/message_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <utility>

namespace stackd {
namespace {

// As many as one message can carry (the kernel's SCM_MAX_FD). What does not fit the kernel closes on the spot, and that may
// wait (deferred_close.h).
constexpr size_t kMaxFds = 253;
constexpr size_t kMaxMessageBytes = 8192;
constexpr size_t kMaxSentFds = 3;
static_assert(sizeof(stackd_hello) <= kMaxMessageBytes && sizeof(stackd_fd_names) <= kMaxMessageBytes &&
              sizeof(stackd_wait_words) <= kMaxMessageBytes && sizeof(stackd_image) <= kMaxMessageBytes);

}  // namespace

uint32_t ReceivedMessage::type() const {
  uint32_t type;
  memcpy(&type, bytes.data(), sizeof(type));
  return type;
}

ReceiveOutcome ReceiveMessage(int socket_fd, ReceivedMessage* out) {
  out->bytes.resize(kMaxMessageBytes);
  out->fds.clear();
  iovec part{out->bytes.data(), out->bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t got = recvmsg(socket_fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? ReceiveOutcome::kNothing : ReceiveOutcome::kClosed;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      out->fds.emplace_back(fd);
    }
  }
  if (got == 0) return ReceiveOutcome::kClosed;
  out->bytes.resize(static_cast<size_t>(got));
  // MSG_CTRUNC is not the sender's fault: we had no fd left. The message stands, without them.
  stackd_message_header message;
  if (out->bytes.size() < sizeof(message) || (header.msg_flags & MSG_TRUNC) != 0) return ReceiveOutcome::kMalformed;
  memcpy(&message, out->bytes.data(), sizeof(message));
  return message.size_bytes == out->bytes.size() ? ReceiveOutcome::kMessage : ReceiveOutcome::kMalformed;
}

bool SendMessage(int socket_fd, const stackd_message_header& message, std::initializer_list<int> fds) {
  iovec part{const_cast<stackd_message_header*>(&message), message.size_bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxSentFds * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fds.size() > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    memcpy(CMSG_DATA(rights), fds.begin(), fds.size() * sizeof(int));
  }
  return sendmsg(socket_fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

}  // namespace stackd

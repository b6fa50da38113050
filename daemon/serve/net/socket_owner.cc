#include "daemon/serve/net/socket_owner.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/time.h>

#include <cstring>

#include "daemon/base/fd.h"

namespace stackd {
namespace {

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

// The port, and the address in network order: 4 or 16 bytes.
void Split(const sockaddr_storage& address, __be16* port, __be32* bytes) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    *port = v4.sin_port;
    memcpy(bytes, &v4.sin_addr, sizeof(v4.sin_addr));
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    *port = v6.sin6_port;
    memcpy(bytes, &v6.sin6_addr, sizeof(v6.sin6_addr));
  }
}

// The kernel answers while it is asked; the bound is for one that does not.
constexpr timeval kPatience{.tv_sec = 0, .tv_usec = 50'000};

}  // namespace

std::optional<uid_t> OwnerOfPeer(const sockaddr_storage& peer, int fd) {
  sockaddr_storage own{};
  socklen_t size_bytes = sizeof(own);
  const Fd kernel(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!kernel.valid() || getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size_bytes) != 0) return std::nullopt;
  setsockopt(kernel.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  Question question{};
  question.header = {.nlmsg_len = sizeof(question), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST};
  question.request.sdiag_family = static_cast<__u8>(peer.ss_family);
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = ~0u;
  inet_diag_sockid& id = question.request.id;
  // The socket that is asked for is the peer's: its source is our destination.
  Split(peer, &id.idiag_sport, id.idiag_src);
  Split(own, &id.idiag_dport, id.idiag_dst);
  id.idiag_cookie[0] = id.idiag_cookie[1] = static_cast<__u32>(INET_DIAG_NOCOOKIE);
  if (send(kernel.get(), &question, sizeof(question), 0) != static_cast<ssize_t>(sizeof(question))) return std::nullopt;
  struct {
    nlmsghdr header;
    inet_diag_msg socket;
    char rest[1024];
  } answer;
  const ssize_t got = recv(kernel.get(), &answer, sizeof(answer), 0);
  const auto least = static_cast<ssize_t>(offsetof(decltype(answer), rest));
  if (got < least || answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  return answer.socket.idiag_uid;
}

}  // namespace stackd

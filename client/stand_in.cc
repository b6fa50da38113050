#include "client/stand_in.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/base/text.h"
#include "daemon/collect/message_socket.h"

namespace stackd {
namespace {

constexpr int kAnswerMs = 5000;

Result<Fd> Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return Error(Code::kInvalidArgument, path + " is too long for a socket");
  path.copy(address.sun_path, path.size());
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid() || connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Error(Code::kUnavailable, "the socket that agents register at cannot be reached: " + path + ": " +
                                         strerror(errno) + "; --pid needs it beside the API (STACKD_DIR)");
  }
  return socket;
}

Result<ReceivedMessage> Await(int socket_fd) {
  ReceivedMessage message;
  pollfd waited{socket_fd, POLLIN, 0};
  if (poll(&waited, 1, kAnswerMs) <= 0) return Error(Code::kDeadlineExceeded, "the daemon does not answer agents");
  if (ReceiveMessage(socket_fd, &message) != ReceiveOutcome::kMessage) {
    return Error(Code::kUnavailable, "the daemon hung up");
  }
  return message;
}

}  // namespace

StandIn::StandIn(UnregisteredProcess process, Fd socket)
    : process_(std::move(process)),
      socket_(std::move(socket)),
      stop_event_(eventfd(0, EFD_CLOEXEC)),
      server_([this] { Serve(); }) {}

StandIn::~StandIn() {
  const uint64_t one = 1;
  (void)!write(stop_event_.get(), &one, sizeof(one));
  server_.join();
}

Result<std::unique_ptr<StandIn>> StandIn::Register(UnregisteredProcess process, const std::string& dir) {
  auto socket = Connect(dir + "/" STACKD_SOCKET_NAME);
  if (!socket) return std::unexpected(socket.error());
  const stackd_hello hello = process.Hello();
  if (!SendMessage(socket->get(), hello.header, {process.memory(), process.maps(), process.folder()})) {
    return Error(Code::kUnavailable, std::string("the daemon cannot be told of the process: ") + strerror(errno));
  }
  auto answer = Await(socket->get());
  if (!answer) return std::unexpected(answer.error());
  if (auto reject = answer->As<stackd_reject>(); answer->type() == STACKD_MSG_REJECT && reject) {
    return Error(Code::kFailedPrecondition, "the daemon refuses the process: " + FieldText(reject->reason));
  }
  if (answer->type() != STACKD_MSG_WELCOME) return Error(Code::kInternal, "the daemon's answer is not understood");
  return std::unique_ptr<StandIn>(new StandIn(std::move(process), std::move(*socket)));
}

void StandIn::Serve() {
  while (true) {
    pollfd waited[] = {{socket_.get(), POLLIN, 0}, {stop_event_.get(), POLLIN, 0}};
    if (poll(waited, std::size(waited), -1) < 0 && errno != EINTR) return;
    if (waited[1].revents != 0) return;
    ReceivedMessage message;
    const ReceiveOutcome outcome = ReceiveMessage(socket_.get(), &message);
    if (outcome == ReceiveOutcome::kNothing) continue;
    if (outcome != ReceiveOutcome::kMessage) return;
    if (auto request = message.As<stackd_open_file>(); message.type() == STACKD_MSG_OPEN_FILE && request)
      SendFile(*request);
  }
}

void StandIn::SendFile(const stackd_open_file& request) {
  const Fd file = process_.OpenMapped(FieldText(request.path));
  stackd_file answer{};
  answer.header = {STACKD_MSG_FILE, sizeof(answer)};
  answer.request_id = request.request_id;
  answer.error = file.valid() ? 0 : -ENOENT;
  auto send = [&] {
    return file.valid() ? SendMessage(socket_.get(), answer.header, {file.get()})
                        : SendMessage(socket_.get(), answer.header);
  };
  while (!send()) {
    // The daemon reads as soon as it can.
    pollfd waited{socket_.get(), POLLOUT, 0};
    if (errno != EAGAIN || poll(&waited, 1, kAnswerMs) <= 0) return;
  }
}

}  // namespace stackd

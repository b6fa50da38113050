#include "daemon/collect/agent_server.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/loop_watch.h"
#include "daemon/base/text.h"
#include "daemon/collect/deferred_close.h"
#include "daemon/log/log.h"
#include "daemon/process/process_description.h"

namespace stackd {
namespace {

constexpr int64_t kHelloTimeoutNs = 5 * kNsPerSecond;
constexpr size_t kMaxWaitingForHello = 256;
// A process without threads is registered so long after its hello. Most children of shells have called exec or ended by
// then, and cost no ring.
constexpr int64_t kRegisterAfterNs = 20 * kNsPerMs;
// How many may wait for that; more are registered at once.
constexpr size_t kMaxToRegister = 256;
// Connections taken before the processes already connected have their turn.
constexpr int kAcceptsPerTurn = 64;
// Without fds to accept with, so long until the next try.
constexpr int kListenerRestMs = 100;
// Messages taken from one agent before the next has its turn.
constexpr int kMessagesPerTurn = 64;

std::string_view PlaceBehind(const ReceivedMessage& hello) {
  const std::string_view bytes(hello.bytes.data(), hello.bytes.size());
  return bytes.substr(sizeof(stackd_hello), STACKD_PLACE_BYTES);
}

// The exception that no code catches, if a message asks for a dump because of one.
std::optional<CrashCapture> ExceptionIn(const ReceivedMessage& message) {
  const auto request = message.As<stackd_exception_request>();
  if (!request || request->type[0] == '\0') return std::nullopt;
  return CrashCapture{.tid = request->tid, .exception_type = FieldText(request->type)};
}

// Takes over the reference to the session, which the server thread must not be the last to drop.
std::shared_ptr<CrashCapturer> CrashCapturerOf(std::shared_ptr<AgentSession> session) {
  CrashCapturer* const crash = &session->crash();
  return {std::move(session), crash};
}

// What came with a message and was not taken.
void Discard(ReceivedMessage message) {
  std::erase_if(message.fds, [](const Fd& fd) { return !fd.valid(); });
  if (!message.fds.empty()) DeferClose(std::make_shared<std::vector<Fd>>(std::move(message.fds)));
}

}  // namespace

Result<void> AgentServer::Start() {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  stop_event_ = Fd(eventfd(0, EFD_CLOEXEC));
  if (!epoll_.valid() || !stop_event_.valid() || !Watch(listener_.get()) || !Watch(stop_event_.get())) {
    return Error(Code::kResourceExhausted, std::string("epoll: ") + strerror(errno));
  }
  thread_ = std::thread([this] { Serve(); });
  return {};
}

void AgentServer::Stop() {
  if (!thread_.joinable()) return;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(stop_event_.get(), &one, sizeof(one));
  thread_.join();
}

bool AgentServer::Watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void AgentServer::Accept() {
  for (int i = 0; i < kAcceptsPerTurn; i++) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      bool short_of_something = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!short_of_something) return;
      // The connection stays in the queue, and epoll would report it without end.
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      listener_rests_ = true;
      return;
    }
    // An agent says hello at once: the oldest is the least likely to be one.
    if (CountSilent() >= kMaxWaitingForHello) DropOldest();
    if (!Watch(fd.get())) {
      parts_.shared.counters->agents_rejected++;
      continue;
    }
    int number = fd.get();
    pending_[number] = {std::move(fd), MonotonicNs()};
  }
}

void AgentServer::Drop(int fd) {
  auto it = pending_.find(fd);
  // By itself a socket leaves epoll only when its last copy is closed, and a child process may have one for a moment.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  DeferClose(std::make_shared<Fd>(std::move(it->second.socket)));
  pending_.erase(it);
}

size_t AgentServer::CountSilent() const {
  return static_cast<size_t>(
      std::ranges::count_if(pending_, [](const auto& entry) { return entry.second.messages.empty(); }));
}

// Agents that have said hello stay.
void AgentServer::DropOldest() {
  auto since = [](const auto& entry) { return entry.second.messages.empty() ? entry.second.since_ns : INT64_MAX; };
  parts_.shared.counters->agents_rejected++;
  Drop(std::ranges::min_element(pending_, {}, since)->first);
}

void AgentServer::Reject(int fd, const std::string& reason) {
  // Programs try again each second: the first, the second, the fourth and so on are enough.
  if (const int64_t count = ++parts_.shared.counters->agents_rejected; std::has_single_bit(static_cast<uint64_t>(count))) {
    Log(LogLevel::kWarning, "agent rejected", {{"reason", reason}, {"count", count}});
  }
  stackd_reject message{};
  message.header = {STACKD_MSG_REJECT, sizeof(message)};
  reason.copy(message.reason, sizeof(message.reason) - 1);
  SendMessage(fd, message.header);
}

// pid and start time; numbered where a process in another PID namespace has the same.
std::string AgentServer::NewId(const stackd_hello& hello) const {
  std::string base = std::to_string(hello.pid) + "-" + std::to_string(hello.start_ticks);
  std::string id = base;
  for (int n = 2; parts_.sessions->Find(id) != nullptr; n++) id = base + "-" + std::to_string(n);
  return id;
}

// Places are shared out by uid, so that no user can take them all. Where none is left, a uid that has fewer than another
// gets one of that one's.
bool AgentServer::MakeRoomFor(uid_t uid) {
  // A process that has ended keeps its place until its ring was looked through.
  if (by_socket_.size() + parts_.crash_intake->ended_count() < parts_.options->max_processes) return true;
  std::map<uid_t, size_t> held{{uid, 0}};
  for (const auto& [fd, agent] : by_socket_) held[agent->process().peer_uid()]++;
  auto most = std::ranges::max_element(held, {}, [](const auto& entry) { return entry.second; });
  if (most->second <= held[uid] + 1) return false;
  int newest_fd = -1;
  parts_.sessions->ForEach([&](AgentSession& session) {
    if (session.process().peer_uid() == most->first) newest_fd = session.process().socket_fd();
  });
  parts_.shared.counters->agents_displaced++;
  Close(newest_fd);
  return true;
}

void AgentServer::Register(Fd* socket, ReceivedMessage* message) {
  auto hello = message->As<stackd_hello>();
  if (message->type() != STACKD_MSG_HELLO || !hello) return Reject(socket->get(), "the first message must be HELLO");
  if (hello->abi_version != STACKD_ABI_VERSION) {
    return Reject(socket->get(), "this daemon speaks ABI version " + std::to_string(STACKD_ABI_VERSION) +
                                     ", the agent version " + std::to_string(hello->abi_version));
  }
  ProcessFiles files;
  size_t next_fd = 0;
  auto take = [&](uint32_t flag, bool (ProcessFiles::*set)(Fd*)) {
    if ((hello->flags & flag) == 0) return true;
    return next_fd < message->fds.size() && (files.*set)(&message->fds[next_fd++]);
  };
  bool taken = take(STACKD_HELLO_HAS_MEM, &ProcessFiles::SetMemory) &&
               take(STACKD_HELLO_HAS_MAPS, &ProcessFiles::SetMaps) && take(STACKD_HELLO_HAS_PROC, &ProcessFiles::SetFolder);
  if ((hello->flags & STACKD_HELLO_HAS_STATUS) != 0 && taken) {
    const std::span<Fd> left = std::span(message->fds).subspan(next_fd);
    taken = left.size() >= 3 && files.SetStatus(&left[0], &left[1], &left[2]);
  }
  if (!taken) return Reject(socket->get(), "the fds that come with HELLO must be files of procfs");
  if (hello->start_ticks == 0) hello->start_ticks = files.StartTicks();

  ucred peer{};
  socklen_t peer_bytes = sizeof(peer);
  if (getsockopt(socket->get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) return;
  if (!MakeRoomFor(peer.uid)) {
    return Reject(socket->get(),
                  "this daemon already serves " + std::to_string(parts_.options->max_processes) + " processes");
  }
  auto ring = Ring::Create(parts_.options->ring_bytes);
  if (!ring) return Reject(socket->get(), ring.error().message);
  stackd_welcome welcome{};
  welcome.header = {STACKD_MSG_WELCOME, sizeof(welcome)};
  welcome.ring_bytes = (*ring)->size_bytes();
  std::string id = NewId(*hello);
  Fd spool_fd;
  std::unique_ptr<HeldSpoolFile> spool_file = MakeSpoolFile({id, peer.uid}, &spool_fd);
  // Who has ended meanwhile may have said more, which is yet to be read.
  if (spool_fd.valid()) {
    SendMessage(socket->get(), welcome.header, {(*ring)->fd(), spool_fd.get()});
  } else {
    SendMessage(socket->get(), welcome.header, {(*ring)->fd()});
  }

  parts_.shared.counters->agents_accepted++;
  int fd = socket->get();
  ProcessDescription process = DescribeProcess(*hello, peer.uid, id);
  if (parts_.options->locate) process.resource_attributes = parts_.options->locate(process.hostname, PlaceBehind(*message));
  auto agent = std::make_shared<AgentSession>(std::move(*socket), peer.uid, *hello, std::move(process), std::move(files),
                                              std::move(*ring), parts_.shared, std::move(spool_file));
  by_socket_[fd] = agent;
  if (agent->process().waker().is_awake()) parts_.prefetcher->Add(CrashCapturerOf(agent));
  parts_.sessions->Add(std::move(agent));
}

void AgentServer::AttachRuntime(Fd* socket, ReceivedMessage* message) {
  ProcessFiles files;
  ucred peer{};
  socklen_t peer_bytes = sizeof(peer);
  if (message->fds.size() < 2 || !files.SetStat(&message->fds[1])) return;
  if (getsockopt(socket->get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) return;
  for (const auto& [agent_fd, agent] : by_socket_) {
    if (agent->process().peer_uid() != peer.uid || !agent->process().files().IsSameProcess(files)) continue;
    const bool has_one =
        std::ranges::any_of(runtimes_, [&](const auto& entry) { return entry.second.agent_fd == agent_fd; });
    AgentRequest request;
    if (has_one || !agent->OnMessage(message, &request)) return;
    const int fd = socket->get();
    runtimes_[fd] = {std::move(*socket), agent_fd};
    return;
  }
}

void AgentServer::CloseRuntime(int fd) {
  auto it = runtimes_.find(fd);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  DeferClose(std::make_shared<Fd>(std::move(it->second.socket)));
  runtimes_.erase(it);
}

void AgentServer::ReadRuntime(int fd) {
  AgentSession& agent = *by_socket_[runtimes_[fd].agent_fd];
  ReceivedMessage message;
  ReceiveOutcome outcome = ReceiveMessage(fd, &message);
  if (outcome == ReceiveOutcome::kNothing) return;
  bool keep = outcome == ReceiveOutcome::kMessage;
  AgentRequest request = AgentRequest::kNothing;
  if (keep && (message.type() == STACKD_MSG_NAME || message.type() == STACKD_MSG_DUMP_REQUEST)) {
    keep = agent.OnMessage(&message, &request);
  }
  if (request == AgentRequest::kDump) parts_.own_dumps->Add({agent.id(), ExceptionIn(message)});
  Discard(std::move(message));
  if (!keep) CloseRuntime(fd);
}

std::unique_ptr<HeldSpoolFile> AgentServer::MakeSpoolFile(const Spool::Owner& owner, Fd* fd) {
  if (parts_.spool == nullptr) return nullptr;
  auto file = parts_.spool->Create(owner);
  // On a full disk: the process tries by itself when it crashes.
  if (!file) return nullptr;
  *fd = std::move(file->fd);
  return std::make_unique<HeldSpoolFile>(parts_.spool_intake, std::move(file->name));
}

void AgentServer::ReadFirstMessage(int fd) {
  ReceivedMessage message;
  ReceiveOutcome outcome = ReceiveMessage(fd, &message);
  if (outcome == ReceiveOutcome::kNothing) return;
  if (outcome != ReceiveOutcome::kMessage) return Drop(fd);
  PendingConnection& connection = pending_[fd];
  if (message.type() == STACKD_MSG_REPORT_FILE && connection.messages.empty()) {
    AttachRuntime(&connection.socket, &message);
    Discard(std::move(message));
    if (connection.socket.valid()) return Drop(fd);
    pending_.erase(fd);
    return;
  }
  const bool waits = KeepsWaiting(&connection, &message);
  connection.messages.push_back(std::move(message));
  if (!waits) RegisterPending(fd);
}

bool AgentServer::KeepsWaiting(PendingConnection* connection, ReceivedMessage* message) const {
  if (!connection->messages.empty()) return message->type() == STACKD_MSG_BELL && connection->messages.size() == 1;
  const auto hello = message->As<stackd_hello>();
  if (message->type() != STACKD_MSG_HELLO || !hello || (hello->flags & STACKD_HELLO_HAS_BELL) == 0) return false;
  if (pending_.size() - CountSilent() >= kMaxToRegister) return false;
  connection->due_ns = MonotonicNs() + kRegisterAfterNs;
  return true;
}

void AgentServer::RegisterPending(int fd) {
  PendingConnection connection = std::move(pending_[fd]);
  pending_.erase(fd);
  Register(&connection.socket, &connection.messages.front());
  Discard(std::move(connection.messages.front()));
  if (connection.socket.valid()) {
    // As in Drop().
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    DeferClose(std::make_shared<Fd>(std::move(connection.socket)));
    return;
  }
  for (size_t i = 1; i < connection.messages.size(); i++) {
    if (!HandleMessage(fd, std::move(connection.messages[i]))) return;
  }
}

int AgentServer::UntilDueMs() const {
  int64_t first_ns = INT64_MAX;
  for (const auto& [fd, connection] : pending_) {
    if (connection.due_ns != 0) first_ns = std::min(first_ns, connection.due_ns);
  }
  if (first_ns == INT64_MAX) return -1;
  return static_cast<int>(std::max<int64_t>(0, first_ns - MonotonicNs()) / kNsPerMs + 1);
}

void AgentServer::RegisterDue() {
  const int64_t now_ns = MonotonicNs();
  std::vector<int> due;
  for (const auto& [fd, connection] : pending_) {
    if (connection.due_ns != 0 && connection.due_ns <= now_ns) due.push_back(fd);
  }
  // In the order in which they came.
  std::ranges::sort(due, {}, [&](int fd) { return pending_[fd].due_ns; });
  for (int fd : due) RegisterPending(fd);
}

void AgentServer::Close(int fd) {
  auto it = by_socket_.find(fd);
  std::shared_ptr<AgentSession> agent = it->second;
  by_socket_.erase(it);
  parts_.sessions->Remove(agent);
  auto runtime = std::ranges::find_if(runtimes_, [&](const auto& entry) { return entry.second.agent_fd == fd; });
  if (runtime != runtimes_.end()) CloseRuntime(runtime->first);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // a capture may keep the agent, and so the socket, for a moment
  agent->OnClosed();
  parts_.crash_intake->OnEnded(CrashCapturerOf(std::move(agent)));
}

void AgentServer::Read(int fd) {
  for (int i = 0; i < kMessagesPerTurn; i++) {
    ReceivedMessage message;
    ReceiveOutcome outcome = ReceiveMessage(fd, &message);
    if (outcome == ReceiveOutcome::kNothing) return;
    if (outcome != ReceiveOutcome::kMessage) return Close(fd);
    if (!HandleMessage(fd, std::move(message))) return;
  }
}

bool AgentServer::HandleMessage(int fd, ReceivedMessage message) {
  // Not a reference of its own: the last one must not be dropped by this thread.
  AgentSession& agent = *by_socket_[fd];
  AgentRequest request = AgentRequest::kNothing;
  const bool keep = agent.OnMessage(&message, &request);
  if (request == AgentRequest::kDump) parts_.own_dumps->Add({agent.id(), ExceptionIn(message)});
  Discard(std::move(message));
  if (!keep) {
    Close(fd);
    return false;
  }
  if (request == AgentRequest::kCrash) parts_.crash_intake->OnCrash(CrashCapturerOf(by_socket_[fd]));
  if (request == AgentRequest::kModules) parts_.prefetcher->AddUrgent(CrashCapturerOf(by_socket_[fd]));
  if (request == AgentRequest::kPrefetch) parts_.prefetcher->Add(CrashCapturerOf(by_socket_[fd]));
  return true;
}

void AgentServer::DropSilent() {
  int64_t since_ns = MonotonicNs() - kHelloTimeoutNs;
  std::vector<int> silent;
  for (const auto& [fd, connection] : pending_) {
    if (connection.since_ns < since_ns) silent.push_back(fd);
  }
  for (int fd : silent) {
    parts_.shared.counters->agents_rejected++;
    Drop(fd);
  }
}

void AgentServer::Serve() {
  for (;;) {
    epoll_event events[64];
    int timeout_ms = listener_rests_ ? kListenerRestMs : pending_.empty() ? -1 : 1000;
    if (const int due_ms = UntilDueMs(); due_ms >= 0) timeout_ms = timeout_ms < 0 ? due_ms : std::min(timeout_ms, due_ms);
    int count = epoll_wait(epoll_.get(), events, std::size(events), timeout_ms);
    LoopWatch::Turn turn(Loop::kAgents);
    if (listener_rests_) listener_rests_ = !Watch(listener_.get());
    for (int i = 0; i < count; i++) {
      int fd = events[i].data.fd;
      turn.Beat();
      if (fd == stop_event_.get()) return;
      if (fd == listener_.get()) {
        Accept();
      } else if (pending_.contains(fd)) {
        ReadFirstMessage(fd);
      } else if (by_socket_.contains(fd)) {
        Read(fd);
      } else if (runtimes_.contains(fd)) {
        ReadRuntime(fd);
      }
    }
    RegisterDue();
    DropSilent();
  }
}

}  // namespace stackd

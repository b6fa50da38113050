#include "daemon/collect/collector.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"
#include "daemon/base/loop_watch.h"
#include "daemon/base/text.h"
#include "daemon/capture/waited_on.h"
#include "daemon/collect/agent_session.h"
#include "daemon/collect/crash_intake.h"
#include "daemon/collect/deferred_close.h"
#include "daemon/collect/message_socket.h"
#include "daemon/collect/module_prefetcher.h"
#include "daemon/crashes/quarantine.h"
#include "daemon/crashes/spool.h"
#include "daemon/crashes/spool_intake.h"
#include "daemon/log/log.h"
#include "daemon/process/process_description.h"

namespace stackd {
namespace {

constexpr int64_t kHelloTimeoutNs = 5 * kNsPerSecond;
// For those that have locks which a capture waits for, all together.
constexpr int64_t kNameOwnersNs = 100 * kNsPerMs;
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
constexpr size_t kMaxQueuedDumpRequests = 64;
// Dumps that processes asked for, at a time: one process that does not answer holds up one of them until its deadline.
constexpr int kRequesters = 4;

Result<sockaddr_un> SocketAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(Code::kInvalidArgument, "the path of a socket has at most " +
                                             std::to_string(sizeof(address.sun_path) - 1) + " bytes, and " + path +
                                             " has " + std::to_string(path.size()) + ": choose a shorter --dir");
  }
  path.copy(address.sun_path, path.size());
  return address;
}

// The lock tells a live daemon from a socket that a dead one left behind.
Result<Fd> LockDir(const std::string& dir) {
  if (mkdir(dir.c_str(), 0755) != 0 && errno != EEXIST) {
    return Error(Code::kFailedPrecondition,
                 "cannot make the folder " + dir + ": " + strerror(errno) + ". Make it, or choose another with --dir");
  }
  std::string path = dir + "/stackd.lock";
  Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) {
    return Error(Code::kFailedPrecondition, "cannot write in " + dir + ": " + strerror(errno) + ". Give uid " +
                                                std::to_string(geteuid()) +
                                                " the right to, or choose another folder with --dir");
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(Code::kAlreadyExists, "another stackd serves " + dir + ": stop it, or choose another folder with --dir");
  }
  return lock;
}

Result<Fd> Listen(const std::string& path) {
  auto address = SocketAddress(path);
  if (!address) return std::unexpected(address.error());
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  unlink(path.c_str());
  bool listening = fd.valid() && bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0 &&
                   // Agents run as any user; what they may do is register themselves. Not through a link that somebody
                   // put there meanwhile.
                   fchmodat(AT_FDCWD, path.c_str(), 0666, AT_SYMLINK_NOFOLLOW) == 0 && listen(fd.get(), 1024) == 0;
  if (!listening) return Error(Code::kFailedPrecondition, "cannot listen on " + path + ": " + strerror(errno));
  return fd;
}

std::unexpected<Status> NotConnected(const std::string& process_id) {
  return Error(Code::kNotFound, "processes/" + process_id + " is not connected: it has ended, or never had the agent",
               "PROCESS_EXITED");
}

std::string_view PlaceBehind(const ReceivedMessage& hello) {
  const std::string_view bytes(hello.bytes.data(), hello.bytes.size());
  return bytes.substr(sizeof(stackd_hello), STACKD_PLACE_BYTES);
}

// Of a message that asks for a dump: the exception that nobody catches, if that is why.
std::optional<CrashCapture> ExceptionIn(const ReceivedMessage& message) {
  const auto request = message.As<stackd_exception_request>();
  if (!request || request->type[0] == '\0') return std::nullopt;
  return CrashCapture{.tid = request->tid, .exception_type = FieldText(request->type)};
}

// What came with a message and was not taken.
void Discard(ReceivedMessage message) {
  std::erase_if(message.fds, [](const Fd& fd) { return !fd.valid(); });
  if (!message.fds.empty()) DeferClose(std::make_shared<std::vector<Fd>>(std::move(message.fds)));
}

}  // namespace

struct Collector::State {
  // A connection that is not registered: it has not said hello, or a moment ago only.
  struct PendingConnection {
    Fd socket;
    int64_t since_ns;
    std::vector<ReceivedMessage> messages = {};  // HELLO, and BELL
    int64_t due_ns = 0;                          // when it is registered, if it is still there
  };

  // A second connection of a process, of the package of its runtime.
  struct RuntimeConnection {
    Fd socket;
    int agent_fd;
  };

  CollectorOptions options;
  CollectorCounters counters;
  ModuleCache modules;
  std::unique_ptr<Spool> spool;  // nullptr: the folder cannot be used
  std::unique_ptr<Quarantine> quarantine;
  std::shared_ptr<SpoolIntake> spool_intake;
  CrashIntake crash_intake;
  ModulePrefetcher prefetcher;
  std::vector<std::string> problems;
  Fd dir_lock;
  Fd listener;
  Fd epoll;
  Fd stop_event;
  std::thread server;

  // Of the server thread.
  bool listener_rests = false;
  std::unordered_map<int, PendingConnection> pending;
  std::unordered_map<int, std::shared_ptr<AgentSession>> by_socket;
  std::unordered_map<int, RuntimeConnection> runtimes;  // one of each agent

  mutable std::mutex mutex;
  std::vector<std::shared_ptr<AgentSession>> agents;  // oldest first

  // Processes that asked for a dump of themselves.
  std::mutex requests_mutex;
  std::condition_variable requests_changed;
  std::deque<OwnDumpRequest> requests;
  std::set<std::string> running_requests;
  bool stopping = false;
  std::function<void(const OwnDumpRequest&)> on_dump_request;
  std::vector<std::thread> requesters;

  bool Watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  void Serve();
  void Accept();
  void Drop(int fd);
  size_t CountSilent() const;
  void DropOldest();
  void ReadFirstMessage(int fd);
  // Whether the connection that sent this is to stay one.
  bool KeepsWaiting(PendingConnection* connection, ReceivedMessage* message) const;
  // With what it has said so far.
  void RegisterPending(int fd);
  void RegisterDue();
  // Until the next of them is due, -1 if none is.
  int UntilDueMs() const;
  // Takes the socket if it registers the process.
  void Register(Fd* socket, ReceivedMessage* message);
  // Takes the socket if its process is registered.
  void AttachRuntime(Fd* socket, ReceivedMessage* message);
  void ReadRuntime(int fd);
  void CloseRuntime(int fd);
  bool MakeRoomFor(uid_t uid);
  // The file is held until the returned handle is gone. Leaves `fd` invalid if there is none.
  std::unique_ptr<HeldSpoolFile> MakeSpoolFile(const Spool::Owner& owner, Fd* fd);
  void Reject(int fd, const std::string& reason);
  void Read(int fd);
  // False: the connection is closed.
  bool HandleMessage(int fd, ReceivedMessage message);
  void Close(int fd);
  void DropSilent();
  std::string NewId(const stackd_hello& hello) const;
  std::shared_ptr<AgentSession> Find(const std::string& id) const;
  // Finds, among the connected processes, those that have what threads of the capture wait for.
  void NameOwnersElsewhere(const AgentSession& waiter, Capture* capture) const;
  // Gives processes that have file locks the names by which they are connected.
  void NameLockingProcesses(Capture* capture) const;
  void QueueDumpRequest(OwnDumpRequest request);
  void RunDumpRequests();
};

void Collector::State::Accept() {
  for (int i = 0; i < kAcceptsPerTurn; i++) {
    Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      bool short_of_something = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!short_of_something) return;
      // The connection stays in the queue, and epoll would report it without end.
      epoll_ctl(epoll.get(), EPOLL_CTL_DEL, listener.get(), nullptr);
      listener_rests = true;
      return;
    }
    // An agent says hello at once: the oldest is the least likely to be one.
    if (CountSilent() >= kMaxWaitingForHello) DropOldest();
    if (!Watch(fd.get())) {
      counters.agents_rejected++;
      continue;
    }
    int number = fd.get();
    pending[number] = {std::move(fd), MonotonicNs()};
  }
}

void Collector::State::Drop(int fd) {
  auto it = pending.find(fd);
  // By itself a socket leaves epoll only when its last copy is closed, and a child process may have one for a moment.
  epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
  DeferClose(std::make_shared<Fd>(std::move(it->second.socket)));
  pending.erase(it);
}

size_t Collector::State::CountSilent() const {
  return static_cast<size_t>(
      std::ranges::count_if(pending, [](const auto& entry) { return entry.second.messages.empty(); }));
}

// Agents that have said hello stay.
void Collector::State::DropOldest() {
  auto since = [](const auto& entry) { return entry.second.messages.empty() ? entry.second.since_ns : INT64_MAX; };
  counters.agents_rejected++;
  Drop(std::ranges::min_element(pending, {}, since)->first);
}

void Collector::State::Reject(int fd, const std::string& reason) {
  // Programs try again each second: the first, the second, the fourth and so on are enough.
  if (const int64_t count = ++counters.agents_rejected; std::has_single_bit(static_cast<uint64_t>(count))) {
    Log(LogLevel::kWarning, "agent rejected", {{"reason", reason}, {"count", count}});
  }
  stackd_reject message{};
  message.header = {STACKD_MSG_REJECT, sizeof(message)};
  reason.copy(message.reason, sizeof(message.reason) - 1);
  SendMessage(fd, message.header);
}

// pid and start time; numbered where a process in another PID namespace has the same.
std::string Collector::State::NewId(const stackd_hello& hello) const {
  std::string base = std::to_string(hello.pid) + "-" + std::to_string(hello.start_ticks);
  std::string id = base;
  for (int n = 2; Find(id) != nullptr; n++) id = base + "-" + std::to_string(n);
  return id;
}

// Places are shared out by uid, so that no user can take them all: where none is left, a uid that has fewer than another
// gets one of those.
bool Collector::State::MakeRoomFor(uid_t uid) {
  // A process that has ended keeps its place until its ring was looked through.
  if (by_socket.size() + crash_intake.ended_count() < options.max_processes) return true;
  std::map<uid_t, size_t> held{{uid, 0}};
  for (const auto& [fd, agent] : by_socket) held[agent->peer_uid()]++;
  auto most = std::ranges::max_element(held, {}, [](const auto& entry) { return entry.second; });
  if (most->second <= held[uid] + 1) return false;
  auto newest = std::find_if(agents.rbegin(), agents.rend(),
                             [&](const std::shared_ptr<AgentSession>& agent) { return agent->peer_uid() == most->first; });
  counters.agents_displaced++;
  Close((*newest)->socket_fd());
  return true;
}

void Collector::State::Register(Fd* socket, ReceivedMessage* message) {
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
    return Reject(socket->get(), "this daemon already serves " + std::to_string(options.max_processes) + " processes");
  }
  auto ring = Ring::Create(options.ring_bytes);
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

  counters.agents_accepted++;
  int fd = socket->get();
  ProcessDescription process = DescribeProcess(*hello, peer.uid, id);
  if (options.locate) process.resource_attributes = options.locate(process.hostname, PlaceBehind(*message));
  auto agent =
      std::make_shared<AgentSession>(std::move(*socket), peer.uid, *hello, std::move(process), std::move(files),
                                     std::move(*ring), &modules, &counters, std::move(spool_file), options.budgets);
  by_socket[fd] = agent;
  if (agent->is_awake()) prefetcher.Add(agent);
  std::lock_guard lock(mutex);
  agents.push_back(std::move(agent));
}

void Collector::State::AttachRuntime(Fd* socket, ReceivedMessage* message) {
  ProcessFiles files;
  ucred peer{};
  socklen_t peer_bytes = sizeof(peer);
  if (message->fds.size() < 2 || !(files.SetStat(&message->fds[1]) || files.SetFolder(&message->fds[1]))) return;
  if (getsockopt(socket->get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) return;
  for (const auto& [agent_fd, agent] : by_socket) {
    if (agent->peer_uid() != peer.uid || !agent->IsProcessOf(files)) continue;
    const bool has_one =
        std::ranges::any_of(runtimes, [&](const auto& entry) { return entry.second.agent_fd == agent_fd; });
    AgentRequest request;
    if (has_one || !agent->OnMessage(message, &request)) return;
    const int fd = socket->get();
    runtimes[fd] = {std::move(*socket), agent_fd};
    return;
  }
}

void Collector::State::CloseRuntime(int fd) {
  auto it = runtimes.find(fd);
  epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
  DeferClose(std::make_shared<Fd>(std::move(it->second.socket)));
  runtimes.erase(it);
}

void Collector::State::ReadRuntime(int fd) {
  AgentSession& agent = *by_socket[runtimes[fd].agent_fd];
  ReceivedMessage message;
  ReceiveOutcome outcome = ReceiveMessage(fd, &message);
  if (outcome == ReceiveOutcome::kNothing) return;
  bool keep = outcome == ReceiveOutcome::kMessage;
  AgentRequest request = AgentRequest::kNothing;
  if (keep && (message.type() == STACKD_MSG_NAME || message.type() == STACKD_MSG_DUMP_REQUEST)) {
    keep = agent.OnMessage(&message, &request);
  }
  if (request == AgentRequest::kDump) QueueDumpRequest({agent.id(), ExceptionIn(message)});
  Discard(std::move(message));
  if (!keep) CloseRuntime(fd);
}

std::unique_ptr<HeldSpoolFile> Collector::State::MakeSpoolFile(const Spool::Owner& owner, Fd* fd) {
  if (spool == nullptr) return nullptr;
  auto file = spool->Create(owner);
  // On a full disk: the process tries by itself when it crashes.
  if (!file) return nullptr;
  *fd = std::move(file->fd);
  return std::make_unique<HeldSpoolFile>(spool_intake, std::move(file->name));
}

void Collector::State::ReadFirstMessage(int fd) {
  ReceivedMessage message;
  ReceiveOutcome outcome = ReceiveMessage(fd, &message);
  if (outcome == ReceiveOutcome::kNothing) return;
  if (outcome != ReceiveOutcome::kMessage) return Drop(fd);
  PendingConnection& connection = pending[fd];
  if (message.type() == STACKD_MSG_REPORT_FILE && connection.messages.empty()) {
    AttachRuntime(&connection.socket, &message);
    Discard(std::move(message));
    if (connection.socket.valid()) return Drop(fd);
    pending.erase(fd);
    return;
  }
  const bool waits = KeepsWaiting(&connection, &message);
  connection.messages.push_back(std::move(message));
  if (!waits) RegisterPending(fd);
}

bool Collector::State::KeepsWaiting(PendingConnection* connection, ReceivedMessage* message) const {
  if (!connection->messages.empty()) return message->type() == STACKD_MSG_BELL && connection->messages.size() == 1;
  const auto hello = message->As<stackd_hello>();
  if (message->type() != STACKD_MSG_HELLO || !hello || (hello->flags & STACKD_HELLO_HAS_BELL) == 0) return false;
  if (pending.size() - CountSilent() >= kMaxToRegister) return false;
  connection->due_ns = MonotonicNs() + kRegisterAfterNs;
  return true;
}

void Collector::State::RegisterPending(int fd) {
  PendingConnection connection = std::move(pending[fd]);
  pending.erase(fd);
  Register(&connection.socket, &connection.messages.front());
  Discard(std::move(connection.messages.front()));
  if (connection.socket.valid()) {
    // As in Drop().
    epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
    DeferClose(std::make_shared<Fd>(std::move(connection.socket)));
    return;
  }
  for (size_t i = 1; i < connection.messages.size(); i++) {
    if (!HandleMessage(fd, std::move(connection.messages[i]))) return;
  }
}

int Collector::State::UntilDueMs() const {
  int64_t first_ns = INT64_MAX;
  for (const auto& [fd, connection] : pending) {
    if (connection.due_ns != 0) first_ns = std::min(first_ns, connection.due_ns);
  }
  if (first_ns == INT64_MAX) return -1;
  return static_cast<int>(std::max<int64_t>(0, first_ns - MonotonicNs()) / kNsPerMs + 1);
}

void Collector::State::RegisterDue() {
  const int64_t now_ns = MonotonicNs();
  std::vector<int> due;
  for (const auto& [fd, connection] : pending) {
    if (connection.due_ns != 0 && connection.due_ns <= now_ns) due.push_back(fd);
  }
  // In the order in which they came.
  std::ranges::sort(due, {}, [&](int fd) { return pending[fd].due_ns; });
  for (int fd : due) RegisterPending(fd);
}

void Collector::State::Close(int fd) {
  auto it = by_socket.find(fd);
  std::shared_ptr<AgentSession> agent = it->second;
  by_socket.erase(it);
  {
    std::lock_guard lock(mutex);
    std::erase(agents, agent);
  }
  auto runtime = std::ranges::find_if(runtimes, [&](const auto& entry) { return entry.second.agent_fd == fd; });
  if (runtime != runtimes.end()) CloseRuntime(runtime->first);
  epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd, nullptr);  // a capture may keep the agent, and so the socket, for a moment
  agent->OnClosed();
  crash_intake.OnEnded(std::move(agent));
}

void Collector::State::Read(int fd) {
  for (int i = 0; i < kMessagesPerTurn; i++) {
    ReceivedMessage message;
    ReceiveOutcome outcome = ReceiveMessage(fd, &message);
    if (outcome == ReceiveOutcome::kNothing) return;
    if (outcome != ReceiveOutcome::kMessage) return Close(fd);
    if (!HandleMessage(fd, std::move(message))) return;
  }
}

bool Collector::State::HandleMessage(int fd, ReceivedMessage message) {
  // Not a reference of its own: the last one must not be dropped by this thread.
  AgentSession& agent = *by_socket[fd];
  AgentRequest request = AgentRequest::kNothing;
  const bool keep = agent.OnMessage(&message, &request);
  if (request == AgentRequest::kDump) QueueDumpRequest({agent.id(), ExceptionIn(message)});
  Discard(std::move(message));
  if (!keep) {
    Close(fd);
    return false;
  }
  if (request == AgentRequest::kCrash) crash_intake.OnCrash(by_socket[fd]);
  if (request == AgentRequest::kModules) prefetcher.AddUrgent(by_socket[fd]);
  if (request == AgentRequest::kPrefetch) prefetcher.Add(by_socket[fd]);
  return true;
}

void Collector::State::DropSilent() {
  int64_t since_ns = MonotonicNs() - kHelloTimeoutNs;
  std::vector<int> silent;
  for (const auto& [fd, connection] : pending) {
    if (connection.since_ns < since_ns) silent.push_back(fd);
  }
  for (int fd : silent) {
    counters.agents_rejected++;
    Drop(fd);
  }
}

void Collector::State::Serve() {
  for (;;) {
    epoll_event events[64];
    int timeout_ms = listener_rests ? kListenerRestMs : pending.empty() ? -1 : 1000;
    if (const int due_ms = UntilDueMs(); due_ms >= 0) timeout_ms = timeout_ms < 0 ? due_ms : std::min(timeout_ms, due_ms);
    int count = epoll_wait(epoll.get(), events, std::size(events), timeout_ms);
    LoopWatch::Turn turn(Loop::kAgents);
    if (listener_rests) listener_rests = !Watch(listener.get());
    for (int i = 0; i < count; i++) {
      int fd = events[i].data.fd;
      turn.Beat();
      if (fd == stop_event.get()) return;
      if (fd == listener.get()) {
        Accept();
      } else if (pending.contains(fd)) {
        ReadFirstMessage(fd);
      } else if (by_socket.contains(fd)) {
        Read(fd);
      } else if (runtimes.contains(fd)) {
        ReadRuntime(fd);
      }
    }
    RegisterDue();
    DropSilent();
  }
}

std::shared_ptr<AgentSession> Collector::State::Find(const std::string& id) const {
  std::lock_guard lock(mutex);
  auto it = std::ranges::find(agents, id, &AgentSession::id);
  return it == agents.end() ? nullptr : *it;
}

void Collector::State::NameOwnersElsewhere(const AgentSession& waiter, Capture* capture) const {
  const int64_t deadline_ns = MonotonicNs() + kNameOwnersNs;
  std::vector<std::shared_ptr<AgentSession>> others;
  for (FutexWord& word : capture->futexes) {
    const int32_t tid = HolderOf(word);
    const bool is_own = std::ranges::find(capture->threads, tid, &ThreadCapture::tid) != capture->threads.end();
    if (!word.is_shared || tid == 0 || is_own || word.shared_memory == SharedMemory{}) continue;
    if (others.empty()) {
      std::lock_guard lock(mutex);
      others = agents;
    }
    for (const auto& other : others) {
      if (other.get() == &waiter || MonotonicNs() >= deadline_ns) continue;
      if (!other->HasThreadAndMemory(tid, waiter, word.shared_memory, deadline_ns)) continue;
      const ProcessDescription process = other->Describe();
      word.owner_pid = process.pid;
      word.owner_process_name = process.display_name;
      break;
    }
  }
}

void Collector::State::NameLockingProcesses(Capture* capture) const {
  std::multimap<int32_t, LockingProcess*> unnamed;
  for (FileLock& lock : capture->file_locks) {
    if (lock.holder.pid > 0) unnamed.emplace(lock.holder.pid, &lock.holder);
    for (LockingProcess& process : lock.circle) unnamed.emplace(process.pid, &process);
  }
  if (unnamed.empty()) return;
  const int64_t deadline_ns = MonotonicNs() + kNameOwnersNs;
  std::vector<std::shared_ptr<AgentSession>> connected;
  {
    std::lock_guard lock(mutex);
    connected = agents;
  }
  for (const auto& agent : connected) {
    if (MonotonicNs() >= deadline_ns) return;
    const auto [begin, end] = unnamed.equal_range(agent->PidForDaemon());
    for (auto process = begin; process != end; ++process) process->second->name = agent->Describe().display_name;
  }
}

void Collector::State::QueueDumpRequest(OwnDumpRequest request) {
  std::lock_guard lock(requests_mutex);
  // One waiting request of a process is enough, but that each exception is a crash of its own. A process that has asked too
  // often was not heard: it cannot fill the queue.
  const bool waits = std::ranges::find(requests, request.process_id, &OwnDumpRequest::process_id) != requests.end();
  if (waits && !request.exception) return;
  if (requests.size() >= kMaxQueuedDumpRequests) {
    counters.dump_requests_refused++;
    return;
  }
  requests.push_back(std::move(request));
  requests_changed.notify_one();
}

void Collector::State::RunDumpRequests() {
  for (;;) {
    std::unique_lock lock(requests_mutex);
    // One at a time of each process, or a single one that does not answer would have all requesters wait for it.
    auto next = requests.end();
    requests_changed.wait(lock, [&] {
      next = std::ranges::find_if(
          requests, [this](const OwnDumpRequest& request) { return !running_requests.contains(request.process_id); });
      return stopping || next != requests.end();
    });
    if (stopping) return;
    const OwnDumpRequest request = std::move(*next);
    requests.erase(next);
    running_requests.insert(request.process_id);
    lock.unlock();
    {
      const LoopWatch::Turn turn(Loop::kDumpRequests);
      on_dump_request(request);
    }
    lock.lock();
    running_requests.erase(request.process_id);
    requests_changed.notify_one();
  }
}

Result<std::unique_ptr<Collector>> Collector::Start(CollectorOptions options) {
  auto state = std::make_unique<State>();
  // A ring must be possible at all: better said now than to each agent.
  if (auto ring = Ring::Create(options.ring_bytes); !ring) return std::unexpected(ring.error());
  std::string socket_path = options.dir + "/" STACKD_SOCKET_NAME;
  if (auto address = SocketAddress(socket_path); !address) return std::unexpected(address.error());
  auto lock = LockDir(options.dir);
  if (!lock) return std::unexpected(lock.error());
  auto listener = Listen(socket_path);
  if (!listener) return std::unexpected(listener.error());
  auto spool = Spool::Open(options.dir);
  if (spool) {
    state->spool = std::move(*spool);
    if (!state->spool->notice().empty()) state->problems.push_back(state->spool->notice());
    auto quarantine = Quarantine::Open(options.dir);
    if (quarantine) {
      state->quarantine = std::move(*quarantine);
    } else {
      state->problems.push_back("a spool file that ends stackd is tried again and again: " + quarantine.error().message);
    }
    state->spool_intake =
        std::make_shared<SpoolIntake>(state->spool.get(), state->quarantine.get(), &state->modules, &state->counters);
  } else {
    state->problems.push_back("crashes that no daemon takes are lost: " + spool.error().message);
  }
  state->options = std::move(options);
  state->dir_lock = std::move(*lock);
  state->listener = std::move(*listener);
  state->epoll = Fd(epoll_create1(EPOLL_CLOEXEC));
  state->stop_event = Fd(eventfd(0, EFD_CLOEXEC));
  if (!state->epoll.valid() || !state->stop_event.valid() || !state->Watch(state->listener.get()) ||
      !state->Watch(state->stop_event.get())) {
    return Error(Code::kResourceExhausted, std::string("epoll: ") + strerror(errno));
  }
  state->server = std::thread([s = state.get()] { s->Serve(); });
  return std::unique_ptr<Collector>(new Collector(std::move(state)));
}

Collector::Collector(std::unique_ptr<State> state) : state_(std::move(state)) {}

Collector::~Collector() {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(state_->stop_event.get(), &one, sizeof(one));
  state_->server.join();
  if (state_->spool_intake != nullptr) state_->spool_intake->Stop();
  {
    std::lock_guard lock(state_->requests_mutex);
    state_->stopping = true;
    state_->requests_changed.notify_all();
  }
  for (std::thread& requester : state_->requesters) requester.join();
  unlink((state_->options.dir + "/" STACKD_SOCKET_NAME).c_str());
}

std::vector<ProcessDescription> Collector::Processes() const {
  std::vector<std::shared_ptr<AgentSession>> agents;
  {
    std::lock_guard lock(state_->mutex);
    agents = state_->agents;
  }
  std::vector<ProcessDescription> result;
  for (auto it = agents.rbegin(); it != agents.rend(); ++it) result.push_back((*it)->Describe());
  return result;
}

Result<std::shared_ptr<Capture>> Collector::CaptureProcess(const std::string& process_id, const CaptureRequest& request) {
  std::shared_ptr<AgentSession> agent = state_->Find(process_id);
  if (agent == nullptr) return NotConnected(process_id);
  auto capture = agent->CaptureThreads(request);
  if (capture) {
    state_->NameOwnersElsewhere(*agent, capture->get());
    state_->NameLockingProcesses(capture->get());
  }
  return capture;
}

Result<std::shared_ptr<Capture>> Collector::Outline(const std::string& process_id) const {
  std::shared_ptr<AgentSession> agent = state_->Find(process_id);
  if (agent == nullptr) return NotConnected(process_id);
  return agent->Outline();
}

void Collector::ConfirmWaits(const std::string& process_id, const LookAtLocks& look, int64_t deadline_ns,
                             Capture* capture) {
  if (std::shared_ptr<AgentSession> agent = state_->Find(process_id)) {
    if (!capture->managed.waits.empty()) agent->DropEndedCyclesOfRuntimes(look, deadline_ns, capture);
    if (!capture->crash) agent->DropWaitsThatEnded(capture);
    return;
  }
  for (ManagedWait& wait : capture->managed.waits) wait.owner_tid = 0;
}

void Collector::SayDumpIsRead(const std::string& process_id) {
  if (std::shared_ptr<AgentSession> agent = state_->Find(process_id)) agent->SayDumpIsRead();
}

Result<std::vector<ThreadMotion>> Collector::ReadMotion(const std::string& process_id) const {
  std::shared_ptr<AgentSession> agent = state_->Find(process_id);
  if (agent == nullptr) return NotConnected(process_id);
  return agent->ReadMotion(/*gives_way=*/true);
}

Result<std::vector<ThreadWait>> Collector::SampleWaits(const std::string& process_id, int64_t deadline_ns) {
  std::shared_ptr<AgentSession> agent = state_->Find(process_id);
  if (agent == nullptr) return NotConnected(process_id);
  state_->counters.wait_samples++;
  return agent->SampleWaits(deadline_ns, /*gives_way=*/true);
}

Result<std::vector<FutexWord>> Collector::ReadFutexes(const std::string& process_id,
                                                      std::span<const FutexWait> waits) const {
  std::shared_ptr<AgentSession> agent = state_->Find(process_id);
  if (agent == nullptr) return NotConnected(process_id);
  return agent->ReadFutexes({waits.begin(), waits.end()});
}

Result<std::vector<WaitedFd>> Collector::DescribeFds(const std::string& process_id, std::span<const int32_t> fds,
                                                     int64_t deadline_ns) const {
  std::shared_ptr<AgentSession> agent = state_->Find(process_id);
  if (agent == nullptr) return NotConnected(process_id);
  return agent->DescribeFds(fds, deadline_ns);
}

Result<SigtermSigns> Collector::ReadSigtermSigns(const std::string& process_id) const {
  std::shared_ptr<AgentSession> agent = state_->Find(process_id);
  if (agent == nullptr) return NotConnected(process_id);
  return agent->ReadSigtermSigns();
}

Result<std::vector<Heartbeat>> Collector::Heartbeats(const std::string& process_id) const {
  std::shared_ptr<AgentSession> agent = state_->Find(process_id);
  if (agent == nullptr) return NotConnected(process_id);
  return agent->Heartbeats();
}

std::vector<int64_t> Collector::ReadProcessMotion(const std::string& process_id) const {
  std::shared_ptr<AgentSession> agent = state_->Find(process_id);
  return agent == nullptr ? std::vector<int64_t>{} : agent->ReadProcessMotion();
}

char Collector::StateOf(const std::string& process_id, int32_t tid) const {
  std::shared_ptr<AgentSession> agent = state_->Find(process_id);
  return agent == nullptr ? 0 : agent->StateOf(tid);
}

void Collector::OnDumpRequest(std::function<void(const OwnDumpRequest&)> handler) {
  state_->on_dump_request = std::move(handler);
  for (int i = 0; i < kRequesters; i++) {
    state_->requesters.emplace_back([s = state_.get()] { s->RunDumpRequests(); });
  }
}

void Collector::EndAttempts() {
  if (state_->spool_intake != nullptr) state_->spool_intake->EndAttempts();
}

void Collector::OnCrash(CrashHandler handler) {
  state_->crash_intake.Start(handler);
  if (state_->spool_intake == nullptr) return;
  // A file does not tell where its process ran, but on which host.
  state_->spool_intake->Start([handler = std::move(handler), locate = state_->options.locate](
                                  std::shared_ptr<Capture> capture, const std::function<void()>& release) {
    if (locate) capture->process.resource_attributes = locate(capture->process.hostname, {});
    handler(std::move(capture), release);
  });
}

bool Collector::HurriesCrashes() const { return state_->crash_intake.InAHurry(); }

std::vector<std::string> Collector::Problems() const { return state_->problems; }

RingUsage Collector::Rings() const {
  std::lock_guard lock(state_->mutex);
  RingUsage usage{.agents = std::ssize(state_->agents)};
  for (const auto& agent : state_->agents) {
    const Ring& ring = agent->ring();
    usage.capacity_bytes += int64_t{ring.slot_count()} * STACKD_SLOT_BYTES;
    usage.used_bytes += int64_t{ring.UsedSlots()} * STACKD_SLOT_BYTES;
  }
  return usage;
}

std::map<std::string, int64_t> Collector::Counters() const {
  const CollectorCounters& c = state_->counters;
  return {
      {"captures", c.captures},
      {"wait_samples", c.wait_samples},
      {"ring_records", c.ring_records},
      {"ring_corrupt_records", c.ring_corrupt_records},
      {"ring_late_records", c.ring_late_records},
      {"ring_dropped_no_slot", c.ring_dropped_no_slot},
      {"ring_dropped_late", c.ring_dropped_late},
      {"ring_dropped_agent_fault", c.ring_dropped_agent_fault},
      {"ring_dropped_crash", c.ring_dropped_crash},
      {"crashes_taken", c.crashes_taken},
      {"crashes_tentative", c.crashes_tentative},
      {"crashes_hurried", c.crashes_hurried},
      {"crashes_repeated", c.crashes_repeated},
      {"spool_taken", c.spool_taken},
      {"spool_refused", c.spool_refused},
      {"spool_set_aside", c.spool_set_aside},
      {"agents_accepted", c.agents_accepted},
      {"agents_rejected", c.agents_rejected},
      {"agents_displaced", c.agents_displaced},
      {"dump_requests_refused", c.dump_requests_refused},
  };
}

}  // namespace stackd

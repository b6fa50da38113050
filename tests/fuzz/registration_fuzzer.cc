// The input is what hostile agents send: a sequence of operations on connections to a Collector's socket. A capture attempt
// of everything that got itself registered follows. An operation is
//
//     code, number of fds, kinds of the fds, two bytes of size, content
//
// and all of it may be cut short.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"
#include "daemon/base/printable.h"
#include "daemon/collect/collector.h"
#include "daemon/log/log.h"
#include "daemon/process/futex_words.h"
#include "daemon/process/lock_layout.h"
#include "daemon/resource/locator.h"
#include "stackd/wire.h"

extern char** environ;

namespace stackd {
namespace {

constexpr int64_t kDeadlineNs = 3 * kNsPerMs;
constexpr uint32_t kRingBytes = 64u << 10;
constexpr uint32_t kMaxProcesses = 8;

enum Operation : uint8_t {
  kSend = 0,
  kSendAsIs = 1,
  kConnect = 2,
  kClose = 3,
  kWriteRing = 4,
  kAnswers = 5,
  kWriteSpool = 6
};

void Check(bool holds) {
  if (!holds) abort();
}

void CheckText(const std::string& text) { Check(PrintableText(text) == text); }

void CheckFutexes(const std::vector<FutexWord>& futexes) {
  Check(futexes.size() <= kMaxFutexWords);
  for (size_t i = 0; i < futexes.size(); i++) {
    const FutexWord& futex = futexes[i];
    Check(futex.avma % 4 == 0 && (i == 0 || futexes[i - 1].avma < futex.avma));
    Check(!futex.mutex || !futex.rwlock);
    if (futex.mutex) Check(futex.mutex->owner_tid >= 0 && futex.mutex->owner_tid <= kMaxTid);
    if (futex.rwlock) Check(futex.rwlock->writer_tid >= 0 && futex.rwlock->writer_tid <= kMaxTid);
  }
}

void CheckWaits(const Capture& capture) {
  CheckFutexes(capture.futexes);
  for (const ThreadCapture& thread : capture.threads) {
    Check(thread.waited_fds.size() <= 64);
    for (int32_t fd : thread.waited_fds) Check(fd >= 0);
  }
  Check(capture.fds.size() <= 256);
  for (const WaitedFd& fd : capture.fds) {
    CheckText(fd.name);
    Check(fd.fd >= 0 && fd.other_end >= -1 && fd.watched.size() <= STACKD_MAX_WATCHED_FDS);
  }
}

// It agrees with itself, whatever it was made of.
void CheckCapture(const Capture& capture) {
  CheckWaits(capture);
  for (const ThreadCapture& thread : capture.threads) {
    uint64_t kept = 0;
    for (uint64_t mask : thread.stack.masks()) kept += static_cast<uint64_t>(std::popcount(mask));
    Check(kept == thread.stack.words().size());
    for (uint32_t i = 0; i < thread.stack.word_count(); i++) thread.stack.Read(thread.stack.base_avma() + 8 * i);
  }
  for (const Mapping& mapping : capture.map->mappings()) Check(mapping.start_avma < mapping.end_avma);
}

// A process of small extent, whose procfs files the agents pass: maps of the fuzzer itself would take milliseconds.
class SmallProcess {
 public:
  SmallProcess() {
    char name[] = "/bin/sleep", time[] = "1000000";
    char* arguments[] = {name, time, nullptr};
    Check(posix_spawn(&pid_, name, nullptr, nullptr, arguments, environ) == 0);
    std::string folder = "/proc/" + std::to_string(pid_);
    mem_ = Fd(open((folder + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
    maps_ = Fd(open((folder + "/maps").c_str(), O_RDONLY | O_CLOEXEC));
    proc_ = Fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    Check(mem_.valid() && maps_.valid() && proc_.valid());
  }
  ~SmallProcess() { kill(pid_, SIGKILL); }

  int mem() const { return mem_.get(); }
  int maps() const { return maps_.get(); }
  int proc() const { return proc_.get(); }

 private:
  pid_t pid_ = 0;
  Fd mem_, maps_, proc_;
};

// What everything needs that outlives an input.
struct World {
  World() {
    char name[] = "/tmp/stackd-fuzz-XXXXXX";
    Check(mkdtemp(name) != nullptr);
    dir = name;
    // Before the collector, whose threads log until it ends.
    StartLog(LogFormat::kText, LogLevel::kError);
    auto started = Collector::Start({.dir = dir,
                                     .ring_bytes = kRingBytes,
                                     .max_processes = kMaxProcesses,
                                     .locate = [this](std::string_view hostname, std::string_view variables) {
                                       return locator.Locate(hostname, variables).values();
                                     }});
    Check(started.has_value());
    collector = std::move(*started);
    collector->OnDumpRequest([](const OwnDumpRequest&) {});
    collector->OnCrash([](std::shared_ptr<Capture> capture, const std::function<void()>& release) {
      CheckCapture(*capture);
      Check(capture->crash.has_value());
      release();
    });
    std::string fifo = dir + "/fifo";
    Check(mkfifo(fifo.c_str(), 0600) == 0);
    Fd kinds[] = {
        Fd(dup(process.mem())),
        Fd(dup(process.maps())),
        Fd(dup(process.proc())),
        Fd(),  // a pipe and a socket: made anew for each use
        Fd(),
        Fd(memfd_create("fuzz", MFD_CLOEXEC)),
        Fd(open(fifo.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)),
        Fd(open("/bin/sleep", O_RDONLY | O_CLOEXEC)),
        Fd(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        Fd(open("/dev/zero", O_RDONLY | O_CLOEXEC)),
        Fd(open("/proc/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
    };
    for (Fd& fd : kinds) fds.push_back(std::move(fd));
  }
  ~World() {
    collector.reset();
    unlink((dir + "/fifo").c_str());
    unlink((dir + "/stackd.lock").c_str());
    std::filesystem::remove_all(dir + "/spool");
    rmdir(dir.c_str());
  }

  // An fd of the kind that a byte of the input asks for, to be closed by the caller.
  Fd Make(uint8_t kind) const {
    size_t index = (kind + fds.size() - 1) % fds.size();
    int pair[2];
    if (index == 3 && pipe2(pair, O_CLOEXEC) == 0) {
      close(pair[1]);
      return Fd(pair[0]);
    }
    if (index == 4 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
      close(pair[1]);
      return Fd(pair[0]);
    }
    return Fd(fcntl(fds[index].get(), F_DUPFD_CLOEXEC, 0));
  }

  std::string dir;
  SmallProcess process;
  // The registrations say that they come from "host".
  const Locator locator{{.hostname = "host", .pod_info_dir = "/nonexistent", .variable = [](const char*) { return "x"; }}};
  std::unique_ptr<Collector> collector;
  std::vector<Fd> fds;
};

bool Send(int socket_fd, const std::vector<uint8_t>& bytes, const std::vector<Fd>& fds) {
  iovec part{const_cast<uint8_t*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(255 * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    for (size_t i = 0; i < fds.size(); i++) {
      int fd = fds[i].get();
      memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(fd));
    }
  }
  return sendmsg(socket_fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

// One hostile agent: what the input makes it do, and a thread that answers the daemon's questions for files.
class Connection {
 public:
  explicit Connection(const World& world) : world_(world) {
    socket_ = Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, (world.dir + "/" STACKD_SOCKET_NAME).c_str());
    Check(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~Connection() { Close(); }

  void Close() {
    if (socket_.valid()) shutdown(socket_.get(), SHUT_RDWR);
    if (responder_.joinable()) responder_.join();
    spool_.Reset();
    socket_.Reset();
    if (memory_ != nullptr) munmap(memory_, ring_bytes_);
    memory_ = nullptr;
  }

  void SendMessage(std::vector<uint8_t> bytes, const std::vector<Fd>& fds, bool with_true_size) {
    if (!socket_.valid()) return;
    if (with_true_size && bytes.size() >= sizeof(stackd_message_header)) {
      auto size = static_cast<uint32_t>(bytes.size());
      memcpy(bytes.data() + 4, &size, sizeof(size));
    }
    bool says_hello = bytes.size() >= sizeof(stackd_hello) && bytes[0] == STACKD_MSG_HELLO;
    if (!Send(socket_.get(), bytes, fds) || !says_hello || memory_ != nullptr) return;
    ReadWelcome();
  }

  void WriteRing(uint16_t offset, uint64_t value) {
    if (memory_ == nullptr) return;
    memcpy(static_cast<char*>(memory_) + offset % (ring_bytes_ - 8), &value, sizeof(value));
  }

  void WriteSpool(const std::vector<uint8_t>& bytes) {
    if (spool_.valid()) Check(write(spool_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }

  void AnswerWith(std::vector<uint8_t> answers) {
    if (memory_ != nullptr && !responder_.joinable() && !answers.empty()) {
      responder_ = std::thread([this, a = std::move(answers)] { Respond(a); });
    }
  }

 private:
  // WELCOME with the ring, or REJECT, or the end: one of them always comes.
  void ReadWelcome() {
    stackd_welcome welcome{};
    iovec part{&welcome, sizeof(welcome)};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    pollfd poll_fd{socket_.get(), POLLIN, 0};
    Check(poll(&poll_fd, 1, 20'000) == 1);
    ssize_t got = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    cmsghdr* rights = got > 0 ? CMSG_FIRSTHDR(&header) : nullptr;
    if (rights == nullptr) return;
    int numbers[2];
    Check(rights->cmsg_len == CMSG_LEN(sizeof(numbers)));
    memcpy(numbers, CMSG_DATA(rights), sizeof(numbers));
    Fd ring(numbers[0]);
    spool_ = Fd(numbers[1]);
    Check(welcome.header.type == STACKD_MSG_WELCOME);
    ring_bytes_ = welcome.ring_bytes;
    memory_ = mmap(nullptr, ring_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, ring.get(), 0);
    Check(memory_ != MAP_FAILED);
  }

  // Two bytes an answer: an error, and the kind of fd that comes along. Fds are described by the same bytes over and over.
  void Respond(const std::vector<uint8_t>& answers) {
    size_t at = 0;
    stackd_open_file request;
    while (recv(socket_.get(), &request, sizeof(request), 0) > 0) {
      if (request.header.type == STACKD_MSG_DESCRIBE_FDS) DescribeFds(request, answers);
      if (request.header.type == STACKD_MSG_ASK_WAITS) TellWaits(request.request_id, answers);
      if (request.header.type == STACKD_MSG_READ_IMAGE) PassImage(request.request_id, answers);
      if (request.header.type != STACKD_MSG_OPEN_FILE) continue;
      stackd_file answer{};
      answer.header = {STACKD_MSG_FILE, sizeof(answer)};
      answer.request_id = request.request_id;
      answer.error = -answers[at++ % answers.size()];
      uint8_t kind = answers[at++ % answers.size()];
      std::vector<Fd> fds;
      if (kind != 0) fds.push_back(world_.Make(kind));
      const auto* bytes = reinterpret_cast<const uint8_t*>(&answer);
      Send(socket_.get(), std::vector<uint8_t>(bytes, bytes + sizeof(answer)), fds);
    }
  }

  void TellWaits(uint32_t request_id, const std::vector<uint8_t>& answers) {
    stackd_wait_words answer;
    auto* bytes = reinterpret_cast<uint8_t*>(&answer);
    for (size_t i = 0; i < sizeof(answer); i++) bytes[i] = answers[i % answers.size()];
    answer.header = {STACKD_MSG_WAIT_WORDS, sizeof(answer)};
    answer.request_id = request_id;
    if (answers[0] % 4 != 0) answer.answer_count = STACKD_MAX_ASKED_WAITS;
    for (stackd_wait_answer& each : answer.answers) {
      if (answers[0] % 2 != 0) each.error = 0;
    }
    Send(socket_.get(), std::vector<uint8_t>(bytes, bytes + sizeof(answer)), {});
  }

  void PassImage(uint32_t request_id, const std::vector<uint8_t>& answers) {
    stackd_image answer;
    auto* bytes = reinterpret_cast<uint8_t*>(&answer);
    for (size_t i = 0; i < sizeof(answer); i++) bytes[i] = answers[i % answers.size()];
    answer.header = {STACKD_MSG_IMAGE, sizeof(answer)};
    answer.request_id = request_id;
    if (answers[0] % 2 != 0) answer.error = 0;
    Send(socket_.get(), std::vector<uint8_t>(bytes, bytes + sizeof(answer)), {});
  }

  // What begins as the question does is right, the rest is the input's.
  void DescribeFds(const stackd_open_file& begins_as, const std::vector<uint8_t>& answers) {
    stackd_describe_fds question;
    memcpy(&question, &begins_as, sizeof(question));
    stackd_fd_names answer;
    auto* bytes = reinterpret_cast<uint8_t*>(&answer);
    for (size_t i = 0; i < sizeof(answer); i++) bytes[i] = answers[i % answers.size()];
    answer.header = {STACKD_MSG_FD_NAMES, sizeof(answer)};
    answer.request_id = question.request_id;
    if (answers[0] % 4 != 0) answer.fd_count = question.fd_count;
    for (size_t i = 0; i < STACKD_MAX_DESCRIBED_FDS; i++) {
      answer.fds[i].fd = question.fds[i];
      if (answers[0] % 2 != 0) answer.fds[i].error = 0;
    }
    Send(socket_.get(), std::vector<uint8_t>(bytes, bytes + sizeof(answer)), {});
  }

  const World& world_;
  Fd socket_;
  Fd spool_;
  void* memory_ = nullptr;
  size_t ring_bytes_ = 0;
  std::thread responder_;
};

// Takes the input apart.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool at_end() const { return size_ == 0; }
  uint8_t Byte() {
    auto bytes = Take(1);
    return bytes.empty() ? 0 : bytes[0];
  }
  uint16_t Short() {
    uint8_t low = Byte();
    return static_cast<uint16_t>(low | Byte() << 8);
  }
  std::vector<uint8_t> Take(size_t count) {
    count = std::min(count, size_);
    std::vector<uint8_t> bytes(data_, data_ + count);
    data_ += count;
    size_ -= count;
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Asks what the detection of hangs asks.
void WatchForHangs(Collector* collector, const std::string& id) {
  int64_t begin_ns = MonotonicNs();
  std::vector<FutexWait> futexes;
  if (auto waits = collector->SampleWaits(id, begin_ns + kDeadlineNs)) {
    for (const ThreadWait& wait : *waits) {
      if (wait.call) futexes.push_back({wait.tid, wait.call->arguments[0]});
    }
  }
  Check(MonotonicNs() - begin_ns < 10 * kNsPerSecond);
  if (auto words = collector->ReadFutexes(id, futexes)) CheckFutexes(*words);
  if (auto heartbeats = collector->Heartbeats(id)) {
    Check(heartbeats->size() <= STACKD_MAX_HEARTBEATS);
    for (const Heartbeat& heartbeat : *heartbeats) {
      CheckText(heartbeat.name);
      Check(heartbeat.limit_ns >= 10 * kNsPerMs && heartbeat.cell < STACKD_MAX_HEARTBEATS);
    }
  }
  collector->ReadSchedStats(id);
}

// A capture agrees with itself and comes in time, whatever the collector was given.
void CaptureAll(Collector* collector) {
  for (const ProcessDescription& process : collector->Processes()) {
    int64_t begin_ns = MonotonicNs();
    auto capture = collector->CaptureProcess(process.id, {.deadline_ns = begin_ns + kDeadlineNs});
    Check(MonotonicNs() - begin_ns < 10 * kNsPerSecond);
    if (capture) CheckCapture(**capture);
    WatchForHangs(collector, process.id);
  }
}

void Apply(const World& world, Input input, std::vector<std::unique_ptr<Connection>>* connections) {
  connections->push_back(std::make_unique<Connection>(world));
  for (int i = 0; i < 64 && !input.at_end(); i++) {
    uint8_t code = input.Byte() % 7;
    std::vector<Fd> fds;
    for (uint8_t kind : input.Take(input.Byte() % 12)) fds.push_back(world.Make(kind));
    std::vector<uint8_t> content = input.Take(input.Short());
    Connection& connection = *connections->back();
    switch (code) {
      case kSend:
      case kSendAsIs:
        connection.SendMessage(std::move(content), fds, code == kSend);
        break;
      case kConnect:
        if (connections->size() < 2 * kMaxProcesses) connections->push_back(std::make_unique<Connection>(world));
        break;
      case kClose:
        connection.Close();
        break;
      case kWriteRing: {
        Input write(content.data(), content.size());
        uint16_t offset = write.Short();
        uint64_t value = 0;
        auto bytes = write.Take(sizeof(value));
        if (!bytes.empty()) memcpy(&value, bytes.data(), bytes.size());
        connection.WriteRing(offset, value);
        break;
      }
      case kAnswers:
        connection.AnswerWith(std::move(content));
        break;
      case kWriteSpool:
        connection.WriteSpool(content);
        break;
    }
  }
}

// The server thread is alive and well: an agent that behaves is served.
void CheckThatAGoodAgentIsServed(const World& world) {
  stackd_hello hello{};
  hello.header = {STACKD_MSG_HELLO, sizeof(hello)};
  hello.abi_version = STACKD_ABI_VERSION;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&hello);
  Connection good(world);
  good.SendMessage(std::vector<uint8_t>(bytes, bytes + sizeof(hello)), {}, false);
}

}  // namespace
}  // namespace stackd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stackd;
  static World world;
  std::vector<std::unique_ptr<Connection>> connections;
  Apply(world, Input(data, size), &connections);
  CaptureAll(world.collector.get());
  connections.clear();
  CheckThatAGoodAgentIsServed(world);
  return 0;
}

// An agent that does as it is told: the other end of the Collector's socket, for tests.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "stackd/spool.h"
#include "stackd/wire.h"

extern "C" {
#include "agent/ring/ring_writer.h"
}

namespace stackd {

inline Fd OpenProc(const char* name, int flags = 0) {
  return Fd(open((std::string("/proc/self/") + name).c_str(), O_RDONLY | O_CLOEXEC | flags));
}

inline std::vector<Fd> OwnFiles() {
  std::vector<Fd> fds;
  fds.push_back(OpenProc("mem"));
  fds.push_back(OpenProc("maps"));
  fds.push_back(OpenProc("", O_DIRECTORY));
  return fds;
}

inline stackd_hello Hello(int32_t pid = getpid()) {
  stackd_hello hello{};
  hello.header = {STACKD_MSG_HELLO, sizeof(hello)};
  hello.abi_version = STACKD_ABI_VERSION;
  hello.flags = STACKD_HELLO_HAS_MEM | STACKD_HELLO_HAS_MAPS | STACKD_HELLO_HAS_PROC;
  hello.pid = pid;
  hello.start_ticks = 1000;
  hello.dump_signal = 34;
  strcpy(hello.argv0, "fake");
  strcpy(hello.exe, "/usr/bin/fake");
  return hello;
}

class FakeAgent {
 public:
  explicit FakeAgent(const std::string& dir) : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (dir + "/" STACKD_SOCKET_NAME).copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) socket_.Reset();
  }
  ~FakeAgent() {
    if (ring.header != nullptr) munmap(ring.header, ring_bytes_);
  }

  int fd() const { return socket_.get(); }

  bool Send(const void* bytes, size_t size_bytes, const std::vector<Fd>& fds = {}) {
    iovec part{const_cast<void*>(bytes), size_bytes};
    std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      *rights = {.cmsg_len = CMSG_LEN(fds.size() * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
      std::vector<int> numbers;
      for (const Fd& fd : fds) numbers.push_back(fd.get());
      memcpy(CMSG_DATA(rights), numbers.data(), numbers.size() * sizeof(int));
    }
    return sendmsg(socket_.get(), &header, MSG_NOSIGNAL) >= 0;
  }

  template <typename Message>
  bool Send(const Message& message, const std::vector<Fd>& fds = {}) {
    return Send(&message, sizeof(message), fds);
  }

  // The next message; nullopt when the daemon has closed the connection, or is silent for 10 s.
  struct Received {
    std::vector<char> bytes;
    std::vector<Fd> fds;
    uint32_t type() const {
      uint32_t type;
      memcpy(&type, bytes.data(), sizeof(type));
      return type;
    }
    template <typename Message>
    Message As() const {
      Message message{};
      memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof(message)));
      return message;
    }
  };
  std::optional<Received> Receive() {
    pollfd poll_fd{socket_.get(), POLLIN, 0};
    if (poll(&poll_fd, 1, 10'000) != 1) return std::nullopt;
    Received received;
    received.bytes.resize(4096);
    iovec part{received.bytes.data(), received.bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    ssize_t got = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
    if (got <= 0) return std::nullopt;
    received.bytes.resize(static_cast<size_t>(got));
    if (received.type() == STACKD_MSG_READ_IMAGE) ++images_asked;
    if (cmsghdr* rights = CMSG_FIRSTHDR(&header)) {
      for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= rights->cmsg_len; i++) {
        int number;
        memcpy(&number, CMSG_DATA(rights) + i * sizeof(int), sizeof(number));
        received.fds.emplace_back(number);
      }
    }
    return received;
  }

  // "": welcomed; else the reason of the rejection, or "closed".
  std::string Register(const stackd_hello& hello = Hello(), const std::vector<Fd>& fds = OwnFiles()) {
    return Send(hello, fds) ? Answer() : "closed";
  }
  std::string Answer() {
    auto received = Receive();
    if (!received) return "closed";
    if (received->type() == STACKD_MSG_REJECT) return received->As<stackd_reject>().reason;
    if (received->type() != STACKD_MSG_WELCOME || received->fds.empty()) return "not a welcome";
    ring_bytes_ = received->As<stackd_welcome>().ring_bytes;
    void* memory = mmap(nullptr, ring_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, received->fds[0].get(), 0);
    if (received->fds.size() > 1) spool = std::move(received->fds[1]);
    return stackd_ring_attach(&ring, memory, ring_bytes_) ? "" : "not a ring";
  }

  // Waits for a command of the daemon; answers its questions for files with `answer_file` meanwhile. 0 when it is gone.
  template <typename AnswerFile>
  uint32_t AwaitCommand(AnswerFile answer_file) {
    __atomic_store_n(&ring.header->helper_sleeping, 1, __ATOMIC_SEQ_CST);
    for (;;) {
      uint32_t seq = __atomic_load_n(&ring.header->command_seq, __ATOMIC_SEQ_CST);
      if (seq != last_seq_) return last_seq_ = seq;
      auto received = Receive();
      if (!received) return 0;
      if (received->type() == STACKD_MSG_OPEN_FILE) answer_file(received->template As<stackd_open_file>());
    }
  }
  // Tells the daemon that there are no files.
  uint32_t AwaitCommand() {
    return AwaitCommand([this](const stackd_open_file& request) { SendFile(request.request_id, -ENOENT, {}); });
  }

  // How often it was asked for a part of an image.
  std::atomic<int> images_asked = 0;

  // How it answers questions about waits; not set: not at all.
  std::function<stackd_wait_answer(const stackd_wait_question&)> answer_wait;

  void AnswerWaits(const stackd_ask_waits& request) {
    stackd_wait_words words{};
    words.header = {STACKD_MSG_WAIT_WORDS, sizeof(words)};
    words.request_id = request.request_id;
    words.answer_count = request.question_count;
    for (uint32_t i = 0; i < request.question_count; i++) words.answers[i] = answer_wait(request.questions[i]);
    Send(words);
  }

  // Tells the daemon that there are no files, until `is_over`: it may ask for one when all threads have answered.
  void AnswerFilesUntil(const std::atomic<bool>& is_over) {
    pollfd poll_fd{socket_.get(), POLLIN, 0};
    while (!is_over) {
      if (poll(&poll_fd, 1, 1) != 1) continue;
      const auto received = Receive();
      if (!received) return;
      if (received->type() == STACKD_MSG_OPEN_FILE) SendFile(received->As<stackd_open_file>().request_id, -ENOENT, {});
      if (received->type() == STACKD_MSG_ASK_WAITS && answer_wait) AnswerWaits(received->As<stackd_ask_waits>());
    }
  }

  void SendFile(uint32_t request_id, int error, const std::vector<Fd>& fds) {
    stackd_file file{};
    file.header = {STACKD_MSG_FILE, sizeof(file)};
    file.request_id = request_id;
    file.error = error;
    Send(file, fds);
  }

  // One thread's answer, as far as this test cares: its tid, a stack of two words, and the call that it is in.
  bool WriteThread(uint32_t seq, uint32_t tid, const stackd_syscall& call = {}) {
    stackd_ring_writer writer;
    auto* record = static_cast<stackd_thread_record*>(
        stackd_ring_begin(&writer, &ring, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), tid));
    if (record == nullptr) return false;
    uint64_t block[] = {3, tid, seq};
    stackd_ring_append(&writer, block, 3);
    record->seq = seq;
    record->tid = tid;
    record->stack_words = 2;
    record->outer_words = 0;
    record->syscall = call;
    stackd_ring_commit(&writer);
    return true;
  }
  // At most as many as fit a record.
  bool WriteWaits(uint32_t seq, const std::vector<stackd_wait_entry>& entries) {
    stackd_ring_writer writer;
    auto* record = static_cast<stackd_wait_record*>(
        stackd_ring_begin(&writer, &ring, STACKD_RECORD_WAIT, sizeof(stackd_wait_record), 1));
    if (record == nullptr) return false;
    record->seq = seq;
    record->entry_count = static_cast<uint32_t>(entries.size());
    std::ranges::copy(entries, record->entries);
    stackd_ring_commit(&writer);
    return true;
  }
  stackd_heartbeat_cell& heartbeat(uint32_t index) {
    return reinterpret_cast<stackd_heartbeat_cell*>(reinterpret_cast<char*>(ring.header) + STACKD_HEARTBEATS_OFFSET)[index];
  }
  // The slots of a crash of thread `tid`, whose stack has two words; not ready. Returns the first slot.
  uint32_t WriteCrashSlots(uint64_t id, uint32_t tid, uint64_t time_ns = stackd_clock_ns(CLOCK_MONOTONIC)) {
    stackd_ring_writer crash_writer, thread_writer;
    auto* crash = static_cast<stackd_crash_record*>(
        stackd_ring_begin_crash(&crash_writer, &ring, STACKD_RECORD_CRASH, sizeof(stackd_crash_record), 1));
    auto* thread = static_cast<stackd_thread_record*>(
        stackd_ring_begin_crash(&thread_writer, &ring, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), 8));
    memset(&crash->id, 0, sizeof(*crash) - sizeof(crash->slot));
    memset(&thread->seq, 0, sizeof(*thread) - sizeof(thread->slot));
    crash->slot.next = thread_writer.first_slot;
    crash->id[0] = id;
    crash->time_ns = time_ns;
    crash->tid = tid;
    crash->signal_number = 11;
    crash->signal_code = 1;
    crash->fault_address = 8;
    strcpy(crash->abort_message, "last words");
    thread->tid = tid;
    thread->stack_base = 0x7000;
    thread->stack_words = 2;
    strcpy(thread->name, "culprit");
    uint64_t block[] = {3, tid, id};
    stackd_ring_append(&thread_writer, block, 3);
    return crash_writer.first_slot;
  }
  void Commit(uint32_t first_slot) {
    __atomic_fetch_or(&ring.header->ready[first_slot / 64], 1ull << (first_slot % 64), __ATOMIC_RELEASE);
  }
  bool SayCrash() {
    stackd_crash message{};
    message.header = {STACKD_MSG_CRASH, sizeof(message)};
    return Send(message);
  }
  uint32_t CrashPhase() const { return __atomic_load_n(&ring.header->crash_phase, __ATOMIC_SEQ_CST); }
  // The bytes that the agent writes to a file where no daemon took the crash.
  std::string SpoolBytes(uint32_t first_slot, const stackd_hello& hello = Hello(), const std::string& maps = "") const {
    stackd_spool_header header{};
    header.maps_bytes = static_cast<uint32_t>(maps.size());
    header.magic = STACKD_SPOOL_MAGIC;
    header.abi_version = STACKD_ABI_VERSION;
    header.header_bytes = sizeof(header);
    header.wall_ns = stackd_clock_ns(CLOCK_REALTIME);
    header.process = hello;
    std::string slots;
    for (uint32_t slot = first_slot; slot != STACKD_NO_SLOT; header.slot_count++) {
      auto* bytes = static_cast<const char*>(stackd_slot(&ring, slot));
      slots.append(bytes, STACKD_SLOT_BYTES);
      memcpy(&slot, bytes, sizeof(slot));
    }
    return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + slots + maps;
  }

  void Begin(uint32_t seq, uint32_t threads) {
    ring.header->threads_listed = threads;
    __atomic_store_n(&ring.header->begun_seq, seq, __ATOMIC_RELEASE);
  }
  void Finish(uint32_t seq) {
    __atomic_store_n(&ring.header->done_seq, seq, __ATOMIC_RELEASE);
    stackd_ring_doorbell(&ring);
  }
  // Answers the questions for fds until all `count` are named: each "fd N", unless `change` makes something else of it.
  template <typename Change>
  void AnswerFds(size_t count, Change change) {
    for (size_t named = 0; named < count;) {
      auto received = Receive();
      if (!received) return;
      if (received->type() != STACKD_MSG_DESCRIBE_FDS && received->type() != STACKD_MSG_DESCRIBE_EPOLLS) continue;
      auto request = received->template As<stackd_describe_fds>();
      stackd_fd_names answer{};
      answer.header = {STACKD_MSG_FD_NAMES, sizeof(answer)};
      answer.request_id = request.request_id;
      answer.fd_count = request.fd_count;
      for (uint32_t i = 0; i < std::min(request.fd_count, STACKD_MAX_DESCRIBED_FDS); i++) {
        answer.fds[i].fd = request.fds[i];
        answer.fds[i].other_end = -1;
        snprintf(answer.fds[i].name, sizeof(answer.fds[i].name), "fd %d", request.fds[i]);
      }
      change(&answer);
      Send(answer);
      named += request.fd_count;
    }
  }
  void AnswerFds(size_t count) {
    AnswerFds(count, [](stackd_fd_names*) {});
  }
  // The answer to a whole dump of `threads` threads, tids from 1.
  void AnswerDump(uint32_t seq, uint32_t threads) {
    Begin(seq, threads);
    for (uint32_t tid = 1; tid <= threads; tid++) {
      while (!WriteThread(seq, tid)) sched_yield();
    }
    Finish(seq);
  }

  // As a process that ends, or execs.
  void Close() {
    spool.Reset();
    socket_.Reset();
  }

  stackd_ring ring{};
  Fd spool;

 private:
  Fd socket_;
  size_t ring_bytes_ = 0;
  uint32_t last_seq_ = 0;
};

}  // namespace stackd

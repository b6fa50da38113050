// Asks a process what some of its fds are.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "daemon/capture/waits.h"
#include "daemon/collect/message_socket.h"

namespace stackd {

// Of one process. What it answers is checked for form, not for truth. Thread-safe.
class FdNames {
 public:
  // More are not asked for.
  static constexpr size_t kMaxFds = 256;

  explicit FdNames(int socket_fd) : socket_fd_(socket_fd) {}

  // By number, each once. What the process does not tell by the deadline has no name.
  std::vector<WaitedFd> Ask(std::span<const int32_t> fds, int64_t deadline_ns);

  // Of the thread that reads the socket. An answer that makes no sense is none.
  void OnAnswer(const ReceivedMessage& message);
  void OnClosed();

 private:
  // One question, in as many messages as it needs.
  struct Round {
    std::map<int32_t, WaitedFd> fds;
    size_t awaited = 0;  // answers
  };
  struct Request {
    Round* round;
    std::vector<int32_t> fds;
  };

  // With mutex_.
  void SendRequests(stackd_message_type type, std::span<const int32_t> fds, Round* round, int64_t deadline_ns,
                    std::unique_lock<std::mutex>* lock);
  // Until all is answered, or the deadline.
  void AwaitAnswers(Round* round, int64_t deadline_ns, std::unique_lock<std::mutex>* lock);
  bool Send(const stackd_message_header& message, int64_t deadline_ns, std::unique_lock<std::mutex>* lock);
  static void Fill(const stackd_fd_name& answer, WaitedFd* fd);

  const int socket_fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  uint32_t next_request_ = 1;
  std::map<uint32_t, Request> awaited_;  // by request id
};

}  // namespace stackd

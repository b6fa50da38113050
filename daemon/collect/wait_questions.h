// Asks a process whose memory may not be read what lies at words that its threads wait on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "daemon/collect/message_socket.h"

namespace stackd {

// Belongs to one process. What it answers is checked for form, not for truth. Thread-safe.
class WaitQuestions {
 public:
  using Answers = std::vector<std::optional<stackd_wait_answer>>;

  explicit WaitQuestions(int socket_fd) : socket_fd_(socket_fd) {}

  // As many answers as questions, in their order; nullopt: the process did not answer by the deadline.
  Answers Ask(std::span<const stackd_wait_question> questions, int64_t deadline_ns);

  // Called by the thread that reads the socket. An answer that makes no sense is none.
  void OnAnswer(const ReceivedMessage& message);
  void OnClosed();

 private:
  // One call of Ask, in as many messages as it needs.
  struct Round {
    Answers answers;
    size_t awaited = 0;  // messages
  };
  struct Request {
    Round* round;
    size_t first;  // of its questions
    size_t count;
  };

  // With mutex_. Whether the message was sent.
  bool Send(const stackd_ask_waits& message, int64_t deadline_ns, std::unique_lock<std::mutex>* lock);

  const int socket_fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  uint32_t next_request_ = 1;
  std::map<uint32_t, Request> awaited_;  // by request id
};

}  // namespace stackd

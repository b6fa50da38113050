// Asks a process whose memory may not be read for code and read-only data of what it has mapped.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/collect/message_socket.h"

namespace stackd {

// Belongs to one process. Thread-safe.
class ImageQuestions {
 public:
  explicit ImageQuestions(int socket_fd) : socket_fd_(socket_fd) {}

  // Exactly as many bytes; fails where the process refuses some of them, or has not answered by the deadline.
  Result<std::vector<uint8_t>> Read(uint64_t avma, uint64_t size_bytes, int64_t deadline_ns);

  // Called by the thread that reads the socket. An answer that makes no sense is none.
  void OnAnswer(const ReceivedMessage& message);
  void OnClosed();

 private:
  // One call of Read, in as many messages as it needs.
  struct Round {
    std::vector<uint8_t> bytes;
    size_t awaited = 0;  // messages
    bool has_failed = false;
  };
  struct Request {
    Round* round;
    uint64_t offset;  // in its bytes
    uint32_t size_bytes;
  };

  // With mutex_.
  bool Send(const stackd_read_image& message, int64_t deadline_ns, std::unique_lock<std::mutex>* lock);

  const int socket_fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  uint32_t next_request_ = 1;
  std::map<uint32_t, Request> awaited_;  // by request id
};

}  // namespace stackd

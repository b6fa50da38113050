// Questions that the daemon asks the agent of one process, which answers each message by its number.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/capture/waits.h"
#include "daemon/collect/message_socket.h"

namespace stackd {

// Thread-safe. Checks the form of answers, not their truth. What the process does not answer by the deadline is missing.
class AgentQuestions {
 public:
  using WaitAnswers = std::vector<std::optional<stackd_wait_answer>>;

  // The most fds that one question may name; the rest is not asked for.
  static constexpr size_t kMaxFds = 256;

  explicit AgentQuestions(int socket_fd) : socket_fd_(socket_fd) {}

  // Opens files in the process: an invalid Fd where it cannot, nullopt where it did not answer.
  std::vector<std::optional<Fd>> OpenFiles(std::span<const std::string> paths, int64_t deadline_ns);
  // Says what the fds are, by number, each once.
  std::vector<WaitedFd> DescribeFds(std::span<const int32_t> fds, int64_t deadline_ns);
  // Copies code or read-only data of a process whose memory may not be read. Fails where the process refuses any of it.
  Result<std::vector<uint8_t>> ReadImage(uint64_t avma, uint64_t size_bytes, int64_t deadline_ns);
  // Gives as many answers as questions, in their order.
  WaitAnswers AskWaits(std::span<const stackd_wait_question> questions, int64_t deadline_ns);

  // The server thread: takes what it needs of the message's fds, and ignores an answer that no question awaits.
  void OnAnswer(ReceivedMessage* message);
  void OnClosed();

 private:
  class Round;
  // Takes an answer, with mutex_. False: the process refuses, and the round ends.
  using TakeAnswer = std::function<bool(ReceivedMessage*)>;
  struct Awaited {
    Round* round;
    stackd_message_type answer_type;
    TakeAnswer take;
  };

  void DescribeFds(stackd_message_type type, std::span<const int32_t> numbers, int64_t deadline_ns,
                   std::map<int32_t, WaitedFd>* fds);

  const int socket_fd_;
  std::mutex mutex_;  // guards all below, and the rounds
  std::condition_variable changed_;
  bool closed_ = false;
  uint32_t next_request_ = 1;
  std::map<uint32_t, Awaited> awaited_;  // by request id
};

}  // namespace stackd

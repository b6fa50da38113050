// Asks a process where the tasks of its runtimes wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "daemon/base/result.h"
#include "daemon/collect/message_socket.h"

namespace stackd {

// Belongs to one process. daemon/managed/task_table checks what it answers. Thread-safe.
class TaskTables {
 public:
  explicit TaskTables(int socket_fd) : socket_fd_(socket_fd) {}

  // Whether there is anything to ask: a process that has not said so is not asked.
  bool has_tasks() const;

  // A stackd_task_table with its records. The tasks have until `asking_until_ns` to say where they wait; a process whose
  // helper thread is late too is not waited for beyond `deadline_ns`.
  Result<std::string> Ask(int64_t asking_until_ns, int64_t deadline_ns);

  // The server thread. What of an answer's fds is not taken stays in it.
  void OnHasTasks();
  void OnAnswer(ReceivedMessage* message);
  void OnClosed();

 private:
  struct Answer {
    int error = 0;
    Fd file;
  };

  const int socket_fd_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool has_tasks_ = false;
  bool closed_ = false;
  uint32_t next_request_ = 1;
  // One question at a time; others wait for their turn.
  bool is_asking_ = false;
  uint32_t awaited_ = 0;  // request id; 0: none
  std::optional<Answer> answer_;
};

}  // namespace stackd

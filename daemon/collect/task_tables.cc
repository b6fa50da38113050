#include "daemon/collect/task_tables.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr int kMaxErrno = 4095;

// What the file holds, if that is not too much.
Result<std::string> ReadTable(const Fd& file) {
  struct stat status;
  if (fstat(file.get(), &status) != 0) return Error(Code::kUnavailable, strerror(errno));
  if (status.st_size < 0 || status.st_size > static_cast<off_t>(STACKD_MAX_TASK_TABLE_BYTES)) {
    return Error(Code::kResourceExhausted, "it says too much");
  }
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t held = 0;
  while (held < bytes.size()) {
    const ssize_t got = pread(file.get(), bytes.data() + held, bytes.size() - held, static_cast<off_t>(held));
    if (got <= 0) break;
    held += static_cast<size_t>(got);
  }
  bytes.resize(held);
  return bytes;
}

std::chrono::nanoseconds Until(int64_t deadline_ns) {
  return std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs()));
}

}  // namespace

bool TaskTables::has_tasks() const {
  std::lock_guard lock(mutex_);
  return has_tasks_;
}

Result<std::string> TaskTables::Ask(int64_t asking_until_ns, int64_t deadline_ns) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, Until(deadline_ns), [&] { return !is_asking_ || closed_; });
  if (closed_) return Error(Code::kNotFound, "the process has ended");
  if (is_asking_) return Error(Code::kDeadlineExceeded, "another dump was asking them");
  const int64_t limit_ms = std::max<int64_t>(0, asking_until_ns - MonotonicNs()) / kNsPerMs;
  stackd_describe_tasks message{};
  message.header = {STACKD_MSG_DESCRIBE_TASKS, sizeof(message)};
  message.request_id = next_request_;
  message.limit_ms = static_cast<uint32_t>(std::min<int64_t>(limit_ms, STACKD_MAX_TASK_LIMIT_MS));
  next_request_ = next_request_ == UINT32_MAX ? 1 : next_request_ + 1;
  if (!SendMessage(socket_fd_, message.header)) return Error(Code::kUnavailable, "the process does not read its messages");
  is_asking_ = true;
  awaited_ = message.request_id;
  answer_.reset();
  changed_.wait_for(lock, Until(deadline_ns), [&] { return answer_ || closed_; });
  is_asking_ = false;
  awaited_ = 0;
  std::optional<Answer> answer = std::exchange(answer_, std::nullopt);
  changed_.notify_all();
  lock.unlock();
  if (!answer) return Error(Code::kDeadlineExceeded, "the process did not answer in time");
  if (answer->error != 0) return Error(Code::kUnavailable, strerror(answer->error));
  return ReadTable(answer->file);
}

void TaskTables::OnHasTasks() {
  std::lock_guard lock(mutex_);
  has_tasks_ = true;
}

void TaskTables::OnAnswer(ReceivedMessage* message) {
  const auto tasks = message->As<stackd_tasks>();
  if (!tasks) return;
  std::lock_guard lock(mutex_);
  // After its deadline.
  if (awaited_ == 0 || tasks->request_id != awaited_ || answer_) return;
  answer_.emplace();
  if (tasks->error < 0 && tasks->error >= -kMaxErrno) {
    answer_->error = -tasks->error;
  } else if (tasks->error != 0 || message->fds.empty() || fcntl(message->fds.front().get(), F_GET_SEALS) < 0) {
    // Only a file in memory has seals: no other is taken, since it could make its reader wait, or the thread that closes
    // it.
    answer_->error = EPROTO;
  } else {
    answer_->file = std::move(message->fds.front());
  }
  changed_.notify_all();
}

void TaskTables::OnClosed() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace stackd

#include "daemon/collect/fd_names.h"

#include <string.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/printable.h"

namespace stackd {

std::vector<WaitedFd> FdNames::Ask(std::span<const int32_t> fds, int64_t deadline_ns) {
  Round round;
  for (int32_t fd : fds) {
    if (round.fds.size() < kMaxFds) round.fds[fd].fd = fd;
  }
  {
    std::unique_lock lock(mutex_);
    SendRequests(&round, deadline_ns, &lock);
    const auto left = std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs()));
    changed_.wait_for(lock, left, [&] { return round.awaited == 0 || closed_; });
    std::erase_if(awaited_, [&](const auto& entry) { return entry.second.round == &round; });
  }
  std::vector<WaitedFd> result;
  for (auto& [number, fd] : round.fds) result.push_back(std::move(fd));
  return result;
}

void FdNames::SendRequests(Round* round, int64_t deadline_ns, std::unique_lock<std::mutex>* lock) {
  std::vector<int32_t> asked;
  for (const auto& [number, fd] : round->fds) {
    asked.push_back(number);
    if (asked.size() < STACKD_MAX_DESCRIBED_FDS && number != round->fds.rbegin()->first) continue;
    stackd_describe_fds message{};
    message.header = {STACKD_MSG_DESCRIBE_FDS, sizeof(message)};
    message.request_id = next_request_++;
    message.fd_count = static_cast<uint32_t>(asked.size());
    std::ranges::copy(asked, message.fds);
    awaited_[message.request_id] = {round, std::move(asked)};
    round->awaited++;
    if (!Send(message.header, deadline_ns, lock)) return;
    asked.clear();
  }
}

bool FdNames::Send(const stackd_message_header& message, int64_t deadline_ns, std::unique_lock<std::mutex>* lock) {
  while (!SendMessage(socket_fd_, message)) {
    // Its queue is full: answers of the helper make room.
    if (closed_ || MonotonicNs() >= deadline_ns) return false;
    changed_.wait_for(*lock, std::chrono::milliseconds(1));
  }
  return true;
}

void FdNames::OnAnswer(const ReceivedMessage& message) {
  auto answer = message.As<stackd_fd_names>();
  if (!answer || answer->fd_count > STACKD_MAX_DESCRIBED_FDS) return;
  std::lock_guard lock(mutex_);
  auto request = awaited_.find(answer->request_id);
  if (request == awaited_.end()) return;  // after its deadline
  const auto& [round, asked] = request->second;
  for (size_t i = 0; i < std::min<size_t>(asked.size(), answer->fd_count); i++) {
    if (answer->fds[i].fd == asked[i]) Fill(answer->fds[i], &round->fds[asked[i]]);
  }
  round->awaited--;
  awaited_.erase(request);
  changed_.notify_all();
}

void FdNames::Fill(const stackd_fd_name& answer, WaitedFd* fd) {
  if (answer.error != 0) return;
  fd->name = PrintableText(std::string_view(answer.name, strnlen(answer.name, sizeof(answer.name))));
  fd->other_end = std::max(answer.other_end, -1);
  fd->watched_count = answer.watched_count;
  const uint32_t given = std::min(answer.watched_count, STACKD_MAX_WATCHED_FDS);
  for (uint32_t i = 0; i < given; i++) {
    if (answer.watched[i] >= 0) fd->watched.push_back(answer.watched[i]);
  }
}

void FdNames::OnClosed() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace stackd

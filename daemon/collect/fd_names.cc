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
    std::vector<int32_t> asked;
    for (const auto& [number, fd] : round.fds) asked.push_back(number);
    SendRequests(STACKD_MSG_DESCRIBE_FDS, asked, &round, deadline_ns, &lock);
    AwaitAnswers(&round, deadline_ns, &lock);
    // Last: the process may wait long for what it looks at there. The others have their names by then.
    std::erase_if(asked, [&](int32_t number) { return round.fds[number].name != STACKD_EPOLL_NAME; });
    SendRequests(STACKD_MSG_DESCRIBE_EPOLLS, asked, &round, deadline_ns, &lock);
    AwaitAnswers(&round, deadline_ns, &lock);
  }
  std::vector<WaitedFd> result;
  for (auto& [number, fd] : round.fds) result.push_back(std::move(fd));
  return result;
}

void FdNames::SendRequests(stackd_message_type type, std::span<const int32_t> fds, Round* round, int64_t deadline_ns,
                           std::unique_lock<std::mutex>* lock) {
  while (!fds.empty()) {
    const auto asked = fds.first(std::min<size_t>(fds.size(), STACKD_MAX_DESCRIBED_FDS));
    fds = fds.subspan(asked.size());
    stackd_describe_fds message{};
    message.header = {type, sizeof(message)};
    message.request_id = next_request_++;
    message.fd_count = static_cast<uint32_t>(asked.size());
    std::ranges::copy(asked, message.fds);
    awaited_[message.request_id] = {round, {asked.begin(), asked.end()}};
    round->awaited++;
    if (!Send(message.header, deadline_ns, lock)) return;
  }
}

void FdNames::AwaitAnswers(Round* round, int64_t deadline_ns, std::unique_lock<std::mutex>* lock) {
  const auto left = std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs()));
  changed_.wait_for(*lock, left, [&] { return round->awaited == 0 || closed_; });
  std::erase_if(awaited_, [&](const auto& entry) { return entry.second.round == round; });
  round->awaited = 0;
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
  // Told in the first answer only, as `watched` in the second.
  if (answer.other_end >= 0) fd->other_end = answer.other_end;
  fd->watched_count = answer.watched_count;
  fd->watched.clear();
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

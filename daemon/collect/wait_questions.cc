#include "daemon/collect/wait_questions.h"

#include <algorithm>
#include <chrono>

#include "daemon/base/clock.h"

namespace stackd {

WaitQuestions::Answers WaitQuestions::Ask(std::span<const stackd_wait_question> questions, int64_t deadline_ns) {
  Round round{.answers = Answers(questions.size())};
  std::unique_lock lock(mutex_);
  for (size_t first = 0; first < questions.size(); first += STACKD_MAX_ASKED_WAITS) {
    const auto asked = questions.subspan(first, std::min<size_t>(questions.size() - first, STACKD_MAX_ASKED_WAITS));
    stackd_ask_waits message{};
    message.header = {STACKD_MSG_ASK_WAITS, sizeof(message)};
    message.request_id = next_request_++;
    message.question_count = static_cast<uint32_t>(asked.size());
    std::ranges::copy(asked, message.questions);
    awaited_[message.request_id] = {&round, first, asked.size()};
    round.awaited++;
    if (!Send(message, deadline_ns, &lock)) break;
  }
  const auto left = std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs()));
  changed_.wait_for(lock, left, [&] { return round.awaited == 0 || closed_; });
  std::erase_if(awaited_, [&](const auto& entry) { return entry.second.round == &round; });
  return std::move(round.answers);
}

bool WaitQuestions::Send(const stackd_ask_waits& message, int64_t deadline_ns, std::unique_lock<std::mutex>* lock) {
  while (!SendMessage(socket_fd_, message.header)) {
    // Its queue is full: answers of the helper make room.
    if (closed_ || MonotonicNs() >= deadline_ns) return false;
    changed_.wait_for(*lock, std::chrono::milliseconds(1));
  }
  return true;
}

void WaitQuestions::OnAnswer(const ReceivedMessage& message) {
  const auto words = message.As<stackd_wait_words>();
  if (!words || words->answer_count > STACKD_MAX_ASKED_WAITS) return;
  std::lock_guard lock(mutex_);
  const auto request = awaited_.find(words->request_id);
  if (request == awaited_.end()) return;  // after its deadline
  const auto& [round, first, count] = request->second;
  for (size_t i = 0; i < std::min<size_t>(count, words->answer_count); i++) round->answers[first + i] = words->answers[i];
  round->awaited--;
  awaited_.erase(request);
  changed_.notify_all();
}

void WaitQuestions::OnClosed() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace stackd

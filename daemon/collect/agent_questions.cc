#include "daemon/collect/agent_questions.h"

#include <string.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/printable.h"

namespace stackd {
namespace {

// How each answer begins.
struct NumberedMessage {
  stackd_message_header header;
  uint32_t request_id;
};

constexpr auto kAwaitRoom = std::chrono::milliseconds(1);

void Fill(const stackd_fd_name& answer, WaitedFd* fd) {
  if (answer.error != 0) return;
  fd->name = PrintableText(std::string_view(answer.name, strnlen(answer.name, sizeof(answer.name))));
  // The first answer has this, the second has `watched`.
  if (answer.other_end >= 0) fd->other_end = answer.other_end;
  fd->watched_count = answer.watched_count;
  fd->watched.clear();
  const uint32_t given = std::min(answer.watched_count, STACKD_MAX_WATCHED_FDS);
  for (uint32_t i = 0; i < given; i++) {
    if (answer.watched[i] >= 0) fd->watched.push_back(answer.watched[i]);
  }
}

}  // namespace

// One question, in as many messages as it needs.
class AgentQuestions::Round {
 public:
  Round(AgentQuestions* agent, int64_t deadline_ns) : agent_(agent), deadline_ns_(deadline_ns) {}
  ~Round() { Await(); }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  // Sends a message with the next number; `take` gets its answer. False: nothing more can be sent.
  template <typename Question>
  bool Send(Question question, stackd_message_type type, stackd_message_type answer_type, TakeAnswer take) {
    std::unique_lock lock(agent_->mutex_);
    question.header = {type, sizeof(question)};
    question.request_id = agent_->next_request_++;
    agent_->awaited_[question.request_id] = {this, answer_type, std::move(take)};
    awaited_count_++;
    awaits_room_ = true;
    while (!refused_ && !agent_->closed_) {
      // No later: the agent would have to answer what is no longer awaited before it gets to the next question.
      if (MonotonicNs() >= deadline_ns_) return false;
      if (SendMessage(agent_->socket_fd_, question.header)) break;
      // The agent's queue is full: its answers make room.
      agent_->changed_.wait_for(lock, kAwaitRoom);
    }
    awaits_room_ = false;
    return !refused_ && !agent_->closed_;
  }

  // Waits for the answers. Later ones are not taken. Reports whether all came.
  bool Await() {
    std::unique_lock lock(agent_->mutex_);
    const auto left = std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns_ - MonotonicNs()));
    agent_->changed_.wait_for(lock, left, [&] { return awaited_count_ == 0 || refused_ || agent_->closed_; });
    std::erase_if(agent_->awaited_, [&](const auto& entry) { return entry.second.round == this; });
    return std::exchange(awaited_count_, 0) == 0 && !refused_;
  }

  // With mutex_. Reports whether its thread has something to do now.
  bool OnAnswer(bool refused) {
    awaited_count_--;
    refused_ = refused_ || refused;
    return awaits_room_ || refused_ || awaited_count_ == 0;
  }

 private:
  AgentQuestions* const agent_;
  const int64_t deadline_ns_;
  size_t awaited_count_ = 0;
  bool awaits_room_ = false;
  bool refused_ = false;
};

std::vector<std::optional<Fd>> AgentQuestions::OpenFiles(std::span<const std::string> paths, int64_t deadline_ns) {
  std::vector<std::optional<Fd>> files(paths.size());
  Round round(this, deadline_ns);
  for (size_t i = 0; i < paths.size(); i++) {
    stackd_open_file question{};
    if (paths[i].size() >= sizeof(question.path)) {
      files[i].emplace();
      continue;
    }
    paths[i].copy(question.path, paths[i].size());
    round.Send(question, STACKD_MSG_OPEN_FILE, STACKD_MSG_FILE, [file = &files[i]](ReceivedMessage* message) {
      const auto answer = message->As<stackd_file>();
      file->emplace();
      if (answer && answer->error == 0 && !message->fds.empty()) *file = std::move(message->fds.front());
      return true;
    });
  }
  round.Await();
  return files;
}

std::vector<WaitedFd> AgentQuestions::DescribeFds(std::span<const int32_t> fds, int64_t deadline_ns) {
  std::map<int32_t, WaitedFd> described;
  for (int32_t fd : fds) {
    if (described.size() < kMaxFds) described[fd].fd = fd;
  }
  std::vector<int32_t> numbers;
  for (const auto& [number, fd] : described) numbers.push_back(number);
  DescribeFds(STACKD_MSG_DESCRIBE_FDS, numbers, deadline_ns, &described);
  // Last, since the process may wait long for what it looks at there. The others have their names by then.
  std::erase_if(numbers, [&](int32_t number) { return described[number].name != STACKD_EPOLL_NAME; });
  DescribeFds(STACKD_MSG_DESCRIBE_EPOLLS, numbers, deadline_ns, &described);
  std::vector<WaitedFd> result;
  for (auto& [number, fd] : described) result.push_back(std::move(fd));
  return result;
}

void AgentQuestions::DescribeFds(stackd_message_type type, std::span<const int32_t> numbers, int64_t deadline_ns,
                                 std::map<int32_t, WaitedFd>* fds) {
  Round round(this, deadline_ns);
  while (!numbers.empty()) {
    const auto asked = numbers.first(std::min<size_t>(numbers.size(), STACKD_MAX_DESCRIBED_FDS));
    numbers = numbers.subspan(asked.size());
    stackd_describe_fds question{.fd_count = static_cast<uint32_t>(asked.size())};
    std::ranges::copy(asked, question.fds);
    const bool sent = round.Send(question, type, STACKD_MSG_FD_NAMES, [asked, fds](ReceivedMessage* message) {
      const auto answer = message->As<stackd_fd_names>();
      if (!answer || answer->fd_count > STACKD_MAX_DESCRIBED_FDS) return true;
      for (size_t i = 0; i < std::min<size_t>(asked.size(), answer->fd_count); i++) {
        if (answer->fds[i].fd == asked[i]) Fill(answer->fds[i], &(*fds)[asked[i]]);
      }
      return true;
    });
    if (!sent) break;
  }
  round.Await();
}

Result<std::vector<uint8_t>> AgentQuestions::ReadImage(uint64_t avma, uint64_t size_bytes, int64_t deadline_ns) {
  std::vector<uint8_t> bytes(size_bytes);
  bool is_refused = false;
  Round round(this, deadline_ns);
  for (uint64_t offset = 0; offset < size_bytes; offset += STACKD_MAX_IMAGE_BYTES) {
    const auto part = std::span(bytes).subspan(offset, std::min<uint64_t>(size_bytes - offset, STACKD_MAX_IMAGE_BYTES));
    const stackd_read_image question{.size_bytes = static_cast<uint32_t>(part.size()), .avma = avma + offset};
    const bool sent = round.Send(question, STACKD_MSG_READ_IMAGE, STACKD_MSG_IMAGE, [&, part](ReceivedMessage* message) {
      const auto image = message->As<stackd_image>();
      is_refused = is_refused || !image || image->error != 0;
      if (!is_refused) std::copy_n(image->bytes, part.size(), part.begin());
      return !is_refused;
    });
    if (!sent) break;
  }
  if (round.Await()) return bytes;
  return Error(Code::kUnavailable,
               is_refused ? "the process does not share this memory" : "the process did not answer by the deadline");
}

AgentQuestions::WaitAnswers AgentQuestions::AskWaits(std::span<const stackd_wait_question> questions, int64_t deadline_ns) {
  WaitAnswers answers(questions.size());
  Round round(this, deadline_ns);
  for (size_t first = 0; first < questions.size(); first += STACKD_MAX_ASKED_WAITS) {
    const auto asked = questions.subspan(first, std::min<size_t>(questions.size() - first, STACKD_MAX_ASKED_WAITS));
    stackd_ask_waits question{.question_count = static_cast<uint32_t>(asked.size())};
    std::ranges::copy(asked, question.questions);
    const auto part = std::span(answers).subspan(first, asked.size());
    const bool sent = round.Send(question, STACKD_MSG_ASK_WAITS, STACKD_MSG_WAIT_WORDS, [part](ReceivedMessage* message) {
      const auto words = message->As<stackd_wait_words>();
      if (!words || words->answer_count > STACKD_MAX_ASKED_WAITS) return true;
      std::copy_n(words->answers, std::min<size_t>(part.size(), words->answer_count), part.begin());
      return true;
    });
    if (!sent) break;
  }
  round.Await();
  return answers;
}

void AgentQuestions::OnAnswer(ReceivedMessage* message) {
  const auto answer = message->As<NumberedMessage>();
  if (!answer) return;
  std::lock_guard lock(mutex_);
  const auto awaited = awaited_.find(answer->request_id);
  if (awaited == awaited_.end() || awaited->second.answer_type != answer->header.type) return;
  const bool refused = !awaited->second.take(message);
  const bool wakes = awaited->second.round->OnAnswer(refused);
  awaited_.erase(awaited);
  if (wakes) changed_.notify_all();
}

void AgentQuestions::OnClosed() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace stackd

#include "daemon/collect/image_questions.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {

Result<std::vector<uint8_t>> ImageQuestions::Read(uint64_t avma, uint64_t size_bytes, int64_t deadline_ns) {
  Round round{.bytes = std::vector<uint8_t>(size_bytes)};
  std::unique_lock lock(mutex_);
  for (uint64_t offset = 0; offset < size_bytes && !round.has_failed; offset += STACKD_MAX_IMAGE_BYTES) {
    stackd_read_image message{};
    message.header = {STACKD_MSG_READ_IMAGE, sizeof(message)};
    message.request_id = next_request_++;
    message.size_bytes = static_cast<uint32_t>(std::min<uint64_t>(size_bytes - offset, STACKD_MAX_IMAGE_BYTES));
    message.avma = avma + offset;
    awaited_[message.request_id] = {&round, offset, message.size_bytes};
    round.awaited++;
    if (!Send(message, deadline_ns, &lock)) break;
  }
  const auto left = std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs()));
  changed_.wait_for(lock, left, [&] { return round.awaited == 0 || round.has_failed || closed_; });
  std::erase_if(awaited_, [&](const auto& entry) { return entry.second.round == &round; });
  if (round.awaited == 0 && !round.has_failed) return std::move(round.bytes);
  return Error(Code::kUnavailable,
               round.has_failed ? "the process does not share this memory" : "the process did not answer by the deadline");
}

bool ImageQuestions::Send(const stackd_read_image& message, int64_t deadline_ns, std::unique_lock<std::mutex>* lock) {
  while (!SendMessage(socket_fd_, message.header)) {
    // Its queue is full: answers of the helper make room.
    if (closed_ || MonotonicNs() >= deadline_ns) return false;
    changed_.wait_for(*lock, std::chrono::milliseconds(1));
  }
  return true;
}

void ImageQuestions::OnAnswer(const ReceivedMessage& message) {
  const auto image = message.As<stackd_image>();
  if (!image) return;
  std::lock_guard lock(mutex_);
  const auto request = awaited_.find(image->request_id);
  if (request == awaited_.end()) return;  // after its deadline
  const auto& [round, offset, size_bytes] = request->second;
  if (image->error == 0) std::copy_n(image->bytes, size_bytes, round->bytes.begin() + static_cast<ptrdiff_t>(offset));
  round->has_failed = round->has_failed || image->error != 0;
  round->awaited--;
  awaited_.erase(request);
  changed_.notify_all();
}

void ImageQuestions::OnClosed() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace stackd

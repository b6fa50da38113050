#include "daemon/access/answer_budget.h"

#include <chrono>

namespace stackd {
namespace {

// A reader that is there takes an answer of 4 MiB in milliseconds.
constexpr auto kRoomWait = std::chrono::seconds(5);

}  // namespace

void AnswerBudget::TakeTurn(const std::string& caller) {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [&] { return turns_ < kTurns && uses_[caller].turns < kTurnsOfOne; });
  ++turns_;
  ++uses_[caller].turns;
}

void AnswerBudget::GiveTurn(const std::string& caller) {
  std::lock_guard lock(mutex_);
  --turns_;
  --uses_.at(caller).turns;
  ForgetIfIdle(caller);
  freed_.notify_all();
}

bool AnswerBudget::Begin(const std::string& caller, size_t size_bytes) {
  std::unique_lock lock(mutex_);
  const auto has_room = [&] {
    const size_t of_one = uses_[caller].bytes;
    return of_one == 0 || (of_one + size_bytes <= kBytesOfOne && bytes_ + size_bytes <= kBytes);
  };
  if (!freed_.wait_for(lock, kRoomWait, has_room)) return false;
  uses_[caller].bytes += size_bytes;
  bytes_ += size_bytes;
  return true;
}

void AnswerBudget::End(const std::string& caller, size_t size_bytes) {
  std::lock_guard lock(mutex_);
  uses_.at(caller).bytes -= size_bytes;
  bytes_ -= size_bytes;
  ForgetIfIdle(caller);
  freed_.notify_all();
}

void AnswerBudget::ForgetIfIdle(const std::string& caller) {
  const auto found = uses_.find(caller);
  if (found->second.turns == 0 && found->second.bytes == 0) uses_.erase(found);
}

}  // namespace stackd

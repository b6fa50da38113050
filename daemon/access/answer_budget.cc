#include "daemon/access/answer_budget.h"

#include <algorithm>

namespace stackd {
namespace {

// A reader that is there takes an answer of 4 MiB in milliseconds.
constexpr auto kRoomWait = std::chrono::seconds(5);
// A hundred large answers, two at a time, take some seconds.
constexpr auto kTurnWait = std::chrono::seconds(30);

}  // namespace

AnswerBudget::Use AnswerBudget::UseOf(const std::string& caller) const {
  const auto found = uses_.find(caller);
  return found == uses_.end() ? Use() : found->second;
}

AnswerBudget::Turn AnswerBudget::TakeTurn(const std::string& caller, std::chrono::system_clock::time_point deadline) {
  const auto now = std::chrono::system_clock::now();
  const auto has_room = [&] {
    const size_t of_one = UseOf(caller).bytes;
    return of_one == 0 || (of_one < kBytesOfOne && bytes_ < kBytes);
  };
  const auto has_turn = [&] {
    const int of_one = UseOf(caller).turns;
    return of_one == 0 ? turns_ < kTurns : of_one < kTurnsOfOne && turns_ < kTurns - 1;
  };
  std::unique_lock lock(mutex_);
  if (!freed_.wait_until(lock, std::min(deadline, now + kRoomWait), has_room)) return Turn::kUnread;
  if (!freed_.wait_until(lock, std::min(deadline, now + kTurnWait), [&] { return has_room() && has_turn(); })) {
    return has_room() ? Turn::kBusy : Turn::kUnread;
  }
  ++turns_;
  ++uses_[caller].turns;
  return Turn::kTaken;
}

void AnswerBudget::GiveTurn(const std::string& caller) {
  std::lock_guard lock(mutex_);
  --turns_;
  --uses_.at(caller).turns;
  ForgetIfIdle(caller);
  freed_.notify_all();
}

void AnswerBudget::Begin(const std::string& caller, size_t size_bytes) {
  std::lock_guard lock(mutex_);
  uses_[caller].bytes += size_bytes;
  bytes_ += size_bytes;
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

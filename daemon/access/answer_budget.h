// Bounds the memory of answers: few are built at a time, and few bytes wait for their readers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace stackd {

// Thread-safe. Neither one nor two callers can have all of it.
class AnswerBudget {
 public:
  static constexpr int kTurns = 4;
  static constexpr int kTurnsOfOne = 2;  // the last turn goes to a caller that has none
  // Limits for answers that were built and not yet read: of all callers, and of one.
  static constexpr size_t kBytes = 96u << 20;
  static constexpr size_t kBytesOfOne = 48u << 20;

  enum class Turn {
    kTaken,
    kUnread,  // there was no room for one more answer in time
    kBusy,    // others had the turns all the time
  };
  // Asks to build an answer: waits some seconds for room and for a turn. A caller without an unread answer always has room.
  Turn TakeTurn(const std::string& caller, std::chrono::system_clock::time_point deadline);
  void GiveTurn(const std::string& caller);

  // An answer waits for its reader from now on. Never blocks, because the caller holds a turn. So the limits may be
  // exceeded, by one answer for each turn at most.
  void Begin(const std::string& caller, size_t size_bytes);
  void End(const std::string& caller, size_t size_bytes);

 private:
  struct Use {
    int turns = 0;
    size_t bytes = 0;
  };

  Use UseOf(const std::string& caller) const;
  void ForgetIfIdle(const std::string& caller);

  std::mutex mutex_;
  std::condition_variable freed_;
  int turns_ = 0;
  size_t bytes_ = 0;
  std::map<std::string, Use> uses_;
};

}  // namespace stackd

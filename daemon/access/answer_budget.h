// Bounds the memory of answers: few are built at a time, and few bytes wait for those who asked for them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace stackd {

// Thread-safe. Nobody can have all of it.
class AnswerBudget {
 public:
  static constexpr int kTurns = 4;
  static constexpr int kTurnsOfOne = 2;
  // Of answers that were built and not yet read: of all callers, and of one.
  static constexpr size_t kBytes = 96u << 20;
  static constexpr size_t kBytesOfOne = 48u << 20;

  // May build an answer: waits for the turn.
  void TakeTurn(const std::string& caller);
  void GiveTurn(const std::string& caller);

  // An answer is about to wait for its reader: waits a while for room. One that is its caller's only one always has it.
  bool Begin(const std::string& caller, size_t size_bytes);
  void End(const std::string& caller, size_t size_bytes);

 private:
  struct Use {
    int turns = 0;
    size_t bytes = 0;
  };

  void ForgetIfIdle(const std::string& caller);

  std::mutex mutex_;
  std::condition_variable freed_;
  int turns_ = 0;
  size_t bytes_ = 0;
  std::map<std::string, Use> uses_;
};

}  // namespace stackd

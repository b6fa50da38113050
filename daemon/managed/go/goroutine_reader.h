// Reads all goroutines of a process out of its memory, while it runs on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/managed/go/goroutine_look.h"
#include "daemon/managed/go/stuck_goroutines.h"
#include "daemon/managed/runtime_reader.h"

namespace stackd {

// Reader for one process at one moment.
class GoroutineReader {
 public:
  // `input.memory` is not nullptr.
  GoroutineReader(const GoBinary& binary, uint64_t bias, const RuntimeInput& input, ManagedFacts* facts);

  // Adds tasks, their stacks and what the captured threads have of Go. Returns why some are missing; empty: none are.
  std::string Read();

 private:
  std::string ReadList(std::vector<uint64_t>* list);
  // Returns the goroutines that are to be looked at again: they moved meanwhile.
  std::vector<uint64_t> ReadAll(std::span<const uint64_t> list, bool is_last_try);
  void AddSeen(const GoroutineLook& look, bool is_last_try, std::vector<uint64_t>* moved);
  void Add(const Goroutine& goroutine, std::span<const GoFrame> frames, GoWalkEnd end, bool has_frames);
  int32_t StackOf(std::span<const GoFrame> frames, GoWalkEnd end);
  // `problem` gets a sentence if there was no room for all.
  std::vector<ManagedFrame> Name(std::span<const GoFrame> frames, bool for_thread, std::string* problem);
  // Empty also when there is no time or no room for more.
  const std::vector<GoPlace>& PlacesAt(const GoFrame& frame);
  bool is_full() const { return used_bytes_ > kMaxBytes; }
  bool is_late() const;
  const std::string& CreatorAt(uint64_t go_pc);
  enum class Start { kProgram, kRuntime, kCallsProgram };
  Start StartAt(uint64_t start_pc) const;
  bool IsSystem(const Goroutine& goroutine, std::span<const GoFrame> frames);
  void FindThreads();
  void AddThreads();
  void AddThread(const ThreadCapture& thread);
  // Whether the thread's stack is as it was copied.
  bool HasStackStill(const ThreadCapture& thread) const;
  // Index in facts_->task_stacks of the stack of a goroutine that is still in a call; nullopt if it is not.
  std::optional<int32_t> StackNow(const Goroutine& goroutine);
  void AddCallerOfC(const ThreadCapture& thread);

  // Limit for names and stacks of one process; what is beyond is counted.
  static constexpr uint64_t kMaxBytes = 64 << 20;

  const GoBinary& binary_;
  const uint64_t bias_;
  const RuntimeInput& input_;
  ManagedFacts* facts_;
  const int64_t now_ns_;
  GoWalker walker_;  // of threads

  std::string key_;                                         // of the stack that is looked at
  std::unordered_map<std::string, int32_t> stack_numbers_;  // by what MakeKey() makes of its frames
  std::unordered_map<uint64_t, std::vector<GoPlace>> places_;
  std::unordered_map<uint64_t, std::string> creators_;
  std::unordered_map<uint64_t, Start> starts_;

  struct Running {
    Goroutine goroutine;
    size_t task;
  };
  std::vector<TaskPlace> places_of_tasks_;
  std::vector<LockWaiter> lock_waiters_;
  std::vector<Running> on_threads_;             // that run, or are in a call
  std::unordered_map<int32_t, size_t> by_tid_;  // places in on_threads_
  uint64_t used_bytes_ = 0;
  bool is_cut_ = false;  // the list was too long
  int64_t unread_ = 0, sensible_ = 0, senseless_ = 0, moving_ = 0, without_room_ = 0, called_by_c_ = 0;
};

}  // namespace stackd

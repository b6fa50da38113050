// What the records of one capture add up to: its threads, and what was lost.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/base/byte_budget.h"
#include "daemon/capture/capture.h"
#include "daemon/capture/counters.h"
#include "daemon/ring/record.h"

namespace stackd {

// One thread at a time.
class Recording {
 public:
  // Records the dump with this number. Each pointer must outlive it, and `budget` what it gives too; nullptr: no limit.
  Recording(uint32_t seq, CollectorCounters* counters, ByteBudget* budget = nullptr);

  // Adds the thread that crashed. Later records of it are ignored: it is held in its signal handler.
  // Without a record it has no stack: AGENT_FAULT.
  void AddCrashed(uint32_t tid, std::optional<ThreadRecord> record);

  void OnThread(ThreadRecord record);
  void OnStatus(StatusRecord record);
  void OnCorrupt(const char* what);

  // The thread, new or not; nullptr if there are too many.
  ThreadCapture* Add(uint32_t tid);

  bool Has(uint32_t tid) const { return index_.contains(tid); }
  size_t size() const { return threads_.size(); }

  // By tid. Leaves nothing.
  std::vector<ThreadCapture> TakeThreads();
  // The part of the budget that the threads take.
  std::shared_ptr<HeldBytes> TakeHeld() { return std::move(held_); }
  void AddNotes(std::vector<std::string>* notes) const;

  bool ended = false;    // the process did
  bool stopped = false;  // the process is
  bool done = false;     // the helper said so
  bool crashed = false;  // the process did, and that was not what this capture is for
  bool hurried = false;  // others had to be seen to
  bool unheard = false;  // no goroutine came to run
  int failure = 0;       // an errno: the helper could not list the threads
  uint32_t listed = 0;

 private:
  bool is_crashed(uint32_t tid) const { return crashed_tid_ == tid; }
  // Takes from the memory that one capture may have; false if there is not so much left.
  bool Take(size_t bytes);
  void Fill(ThreadRecord record, ThreadCapture* thread);

  const uint32_t seq_;
  CollectorCounters* const counters_;
  std::vector<ThreadCapture> threads_;
  std::unordered_map<uint32_t, size_t> index_;
  std::optional<uint32_t> crashed_tid_;
  const size_t max_bytes_;
  std::shared_ptr<HeldBytes> held_;
  size_t captured_bytes_ = 0;
  int64_t over_limit_ = 0;
  int64_t traces_over_limit_ = 0;
  int64_t corrupt_ = 0;
  const char* last_corruption_ = "";
};

}  // namespace stackd

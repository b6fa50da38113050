#include "daemon/process/memory_reader.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <semaphore>
#include <vector>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// Work that hangs until it is let go.
class Hanging {
 public:
  ~Hanging() {
    gate_->opened.release(count_);
    for (; count_ > 0; --count_) gate_->passed.acquire();
  }

  void StartOne(const MemoryReader& reader) {
    EXPECT_FALSE(reader.Run(MonotonicNs(), [gate = gate_](const ProcessFiles&) {
      gate->begun.release();
      gate->opened.acquire();
      gate->passed.release();
    }));
    gate_->begun.acquire();
    ++count_;
  }

 private:
  struct Gate {
    std::counting_semaphore<> begun{0};
    std::counting_semaphore<> opened{0};
    std::counting_semaphore<> passed{0};
  };

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  int count_ = 0;
};

bool Runs(const MemoryReader& reader) {
  return reader.Run(MonotonicNs() + 20 * kNsPerSecond, [](const ProcessFiles&) {});
}

std::vector<MemoryReader> Readers(int count) {
  const auto files = std::make_shared<const ProcessFiles>();
  std::vector<MemoryReader> readers;
  for (int i = 0; i < count; ++i) readers.emplace_back(files);
  return readers;
}

TEST(MemoryReader, OfOneProcessDoesNotTakeTheThreadsOfOthers) {
  const auto readers = Readers(2);
  Hanging hanging;
  for (int i = 0; i < MemoryReader::kMaxRunning; ++i) hanging.StartOne(readers[0]);
  EXPECT_FALSE(Runs(readers[0]));
  EXPECT_TRUE(Runs(readers[1]));
}

TEST(MemoryReader, OfAllProcessesHangsOnABoundedNumberOfThreads) {
  const auto readers = Readers(MemoryReader::kMaxRunningOfAll + 1);
  Hanging hanging;
  for (int i = 0; i < MemoryReader::kMaxRunningOfAll; ++i) hanging.StartOne(readers[i]);
  EXPECT_FALSE(Runs(readers.back()));
}

TEST(MemoryReader, ThatGaveUpWorksAgainWhenItsReadsHaveEnded) {
  const auto readers = Readers(1);
  {
    Hanging hanging;
    for (int i = 0; i < MemoryReader::kMaxRunning; ++i) hanging.StartOne(readers[0]);
    EXPECT_FALSE(Runs(readers[0])) << "at once";
  }
  bool works = false;
  for (int64_t until_ns = MonotonicNs() + 20 * kNsPerSecond; !works && MonotonicNs() < until_ns; sched_yield()) {
    works = Runs(readers[0]);
  }
  EXPECT_TRUE(works);
}

}  // namespace
}  // namespace stackd

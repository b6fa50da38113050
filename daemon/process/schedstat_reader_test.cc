#include "daemon/process/schedstat_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <semaphore.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace stackd {
namespace {

using testing::SizeIs;

// Threads that sleep until they are told to end.
class Sleepers {
 public:
  explicit Sleepers(int count) : threads_(count) {
    sem_init(&end_, 0, 0);
    sem_init(&ready_, 0, 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (pthread_t& thread : threads_) EXPECT_EQ(pthread_create(&thread, &attributes, Sleep, this), 0);
    for (int i = 0; i < count; ++i) sem_wait(&ready_);
  }
  ~Sleepers() {
    for (size_t i = 0; i < threads_.size(); ++i) sem_post(&end_);
    for (pthread_t thread : threads_) pthread_join(thread, nullptr);
  }

 private:
  static void* Sleep(void* argument) {
    auto* self = static_cast<Sleepers*>(argument);
    sem_post(&self->ready_);
    while (sem_wait(&self->end_) != 0) {
    }
    return nullptr;
  }

  sem_t ready_, end_;
  std::vector<pthread_t> threads_;
};

std::shared_ptr<const ProcessFiles> OwnFiles() {
  auto files = std::make_shared<ProcessFiles>();
  Fd folder(open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_TRUE(files->SetFolder(&folder));
  return files;
}

uint64_t RunsByKernel(int32_t tid) {
  std::ifstream file("/proc/self/task/" + std::to_string(tid) + "/schedstat");
  uint64_t run_ns = 0, runnable_ns = 0, runs = 0;
  file >> run_ns >> runnable_ns >> runs;
  return runs;
}

// Where a test begins, its one thread, and what a sanitizer's runtime has.
class SchedStatReaderTest : public testing::Test {
 protected:
  // A sanitizer's own thread begins with the first of the program.
  SchedStatReaderTest() {
    std::thread([] {}).join();
    others_ = Tids();
  }

  static std::set<int32_t> Tids() {
    std::set<int32_t> tids;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
      tids.insert(std::stoi(entry.path().filename().string()));
    return tids;
  }

  std::set<int32_t> others_;
};

TEST_F(SchedStatReaderTest, TellsWhatTheKernelTells) {
  const auto files = OwnFiles();
  Sleepers sleepers(300);
  for (int look = 0; look < 3; ++look) {
    const auto sched_stats = ListSchedStats(*files);
    ASSERT_TRUE(sched_stats.has_value());
    ASSERT_THAT(*sched_stats, SizeIs(300 + others_.size()));
    EXPECT_TRUE(std::ranges::is_sorted(*sched_stats, {}, &ThreadSchedStat::tid));
    for (const ThreadSchedStat& sched_stat : *sched_stats) {
      if (others_.contains(sched_stat.tid)) continue;
      ASSERT_EQ(sched_stat.run_count, RunsByKernel(sched_stat.tid));
    }
  }
}

TEST_F(SchedStatReaderTest, ThreadsThatEndedAreNotThere) {
  const auto files = OwnFiles();
  {
    Sleepers sleepers(10);
    EXPECT_THAT(*ListSchedStats(*files), SizeIs(10 + others_.size()));
  }
  EXPECT_THAT(*ListSchedStats(*files), SizeIs(others_.size()));
}

TEST_F(SchedStatReaderTest, WhoPassedNoFolderHasNone) {
  EXPECT_EQ(ListSchedStats(ProcessFiles()).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace stackd

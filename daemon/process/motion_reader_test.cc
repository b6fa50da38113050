#include "daemon/process/motion_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <semaphore.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

using testing::Contains;
using testing::Field;
using testing::Not;
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
class MotionReaderTest : public testing::Test {
 protected:
  // A sanitizer's own thread begins with the first of the program.
  MotionReaderTest() {
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

TEST_F(MotionReaderTest, KeepsTheFilesOfManyThreadsAndTellsTheSame) {
  MotionReader reader(OwnFiles());
  Sleepers sleepers(MotionReader::kManyThreads);
  for (int look = 0; look < 3; ++look) {
    const auto motions = reader.Read();
    ASSERT_TRUE(motions.has_value());
    ASSERT_THAT(*motions, SizeIs(MotionReader::kManyThreads + others_.size()));
    EXPECT_EQ(MotionReader::open_files(), static_cast<int>(MotionReader::kManyThreads + others_.size()));
    for (const ThreadMotion& motion : *motions) {
      if (others_.contains(motion.tid)) continue;
      ASSERT_EQ(motion.run_count, RunsByKernel(motion.tid));
    }
  }
}

TEST_F(MotionReaderTest, LetsGoOfThreadsThatEndedAndOfAll) {
  {
    MotionReader reader(OwnFiles());
    {
      Sleepers sleepers(MotionReader::kManyThreads);
      ASSERT_TRUE(reader.Read().has_value());
    }
    const auto motions = reader.Read();
    ASSERT_TRUE(motions.has_value());
    EXPECT_THAT(*motions, SizeIs(others_.size()));
    EXPECT_EQ(MotionReader::open_files(), static_cast<int>(others_.size()));
    Sleepers others(MotionReader::kManyThreads);
    EXPECT_THAT(*reader.Read(), SizeIs(MotionReader::kManyThreads + others_.size()));
  }
  EXPECT_EQ(MotionReader::open_files(), 0);
}

TEST_F(MotionReaderTest, KeepsNoFilesOfFewThreads) {
  MotionReader reader(OwnFiles());
  Sleepers sleepers(10);
  EXPECT_THAT(*reader.Read(), SizeIs(10 + others_.size()));
  EXPECT_EQ(MotionReader::open_files(), 0);
}

TEST_F(MotionReaderTest, OneProcessDoesNotTakeAllFiles) {
  MotionReader reader(OwnFiles());
  Sleepers sleepers(MotionReader::kMaxFilesOfOne + 100);
  const auto motions = reader.Read();
  EXPECT_THAT(*motions, SizeIs(MotionReader::kMaxFilesOfOne + 100 + others_.size()));
  EXPECT_EQ(MotionReader::open_files(), static_cast<int>(MotionReader::kMaxFilesOfOne));
}

TEST_F(MotionReaderTest, ALookAtAThousandThreadsIsMeasured) {
  MotionReader reader(OwnFiles());
  Sleepers sleepers(1000);
  ASSERT_TRUE(reader.Read().has_value());
  constexpr int kLooks = 20;
  const int64_t begin_ns = ClockNs(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < kLooks; ++i) ASSERT_TRUE(reader.Read().has_value());
  RecordProperty("us", static_cast<int>((ClockNs(CLOCK_THREAD_CPUTIME_ID) - begin_ns) / kLooks / 1000));
  printf("a look: %d us\n", static_cast<int>((ClockNs(CLOCK_THREAD_CPUTIME_ID) - begin_ns) / kLooks / 1000));
}

}  // namespace
}  // namespace stackd

#include "daemon/process/threads_in_words.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"

namespace stackd {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

ProcessFiles Own() {
  ProcessFiles files;
  Fd folder(open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_TRUE(files.SetFolder(&folder));
  return files;
}

// Threads of one name that wait until the object goes.
class Sleepers {
 public:
  Sleepers(int count, const char* name) : named_(count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, name] {
        pthread_setname_np(pthread_self(), name);
        named_.count_down();
        end_.wait();
      });
    }
    named_.wait();
  }
  ~Sleepers() { end_.count_down(); }

 private:
  std::latch named_, end_{1};
  std::vector<std::jthread> threads_;
};

TEST(ThreadsInWords, EqualThreadsAreCounted) {
  const Sleepers sleepers(12, "sleeper");
  const int64_t deadline_ns = MonotonicNs() + 20 * kNsPerSecond;
  std::string words;
  // The last of them may still be on its way to where it sleeps.
  do {
    words = ThreadsInWords(Own());
  } while (words.find("12 sleeper (sleeping") == std::string::npos && MonotonicNs() < deadline_ns);
  EXPECT_THAT(words, HasSubstr("12 sleeper (sleeping"));
  EXPECT_THAT(words, HasSubstr("1 threads_in_word (running)"));
}

TEST(ThreadsInWords, ManyKindsAreCutAndTheRestIsCounted) {
  std::vector<std::unique_ptr<Sleepers>> kinds;
  for (int i = 0; i < 20; ++i) kinds.push_back(std::make_unique<Sleepers>(1, ("kind-" + std::to_string(i)).c_str()));
  EXPECT_THAT(ThreadsInWords(Own()), MatchesRegex(".*, .* and 1[0-9] others"));
}

TEST(ThreadsInWords, NothingIsSaidWithoutAFolder) { EXPECT_EQ(ThreadsInWords(ProcessFiles()), ""); }

}  // namespace
}  // namespace stackd

// A Collector on a folder of its own, for tests with agents that do as they are told (daemon/testing/fake_agent.h).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/collect/collector.h"
#include "daemon/testing/fake_agent.h"

namespace stackd {

// Matchers that the tests of this room use.
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

inline constexpr int64_t kLongNs = 20 * kNsPerSecond;

// Looks again every millisecond, for as long as a slow machine may need.
inline bool Eventually(const std::function<bool()>& holds, int64_t timeout_ns = kLongNs) {
  for (int64_t until_ns = MonotonicNs() + timeout_ns; MonotonicNs() < until_ns; usleep(1000)) {
    if (holds()) return true;
  }
  return holds();
}

inline CaptureRequest In(int64_t timeout_ns) { return {.deadline_ns = MonotonicNs() + timeout_ns}; }

class CollectorFixture : public testing::Test {
 protected:
  CollectorFixture() {
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    EXPECT_EQ(chmod(dir_.c_str(), 0755), 0);
  }
  ~CollectorFixture() override {
    collector_.reset();
    std::filesystem::remove_all(dir_);
  }

  // Crashes wait, since none handles them.
  void Start(CollectorOptions options = {}) {
    options.dir = dir_;
    options.ring_bytes = 256u << 10;
    auto started = Collector::Start(std::move(options));
    ASSERT_TRUE(started.has_value()) << started.error().message;
    collector_ = std::move(*started);
  }
  void StartAndStoreCrashes(CollectorOptions options = {}) {
    ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
    collector_->OnCrash([](std::shared_ptr<Capture>, const std::function<void()>& release) { release(); });
  }

  bool AwaitProcesses(size_t count, int64_t timeout_ns = kLongNs) {
    return Eventually([&] { return collector_->Processes().size() == count; }, timeout_ns);
  }
  ProcessDescription Find(const std::string& id) {
    for (ProcessDescription& process : collector_->Processes()) {
      if (process.id == id) return process;
    }
    return {};
  }
  int64_t Counter(const std::string& name) { return collector_->Counters()[name]; }

  // A well-behaved agent is served at once, whatever others do.
  void ExpectAGoodAgentIsServed(int32_t pid = 4711) {
    FakeAgent good(dir_);
    int64_t begin_ns = MonotonicNs();
    ASSERT_EQ(good.Register(Hello(pid)), "");
    std::string id = std::to_string(pid) + "-1000";
    ASSERT_TRUE(Eventually([&] { return Find(id).id == id; }));
    std::jthread helper([&] {
      if (uint32_t seq = good.AwaitCommand()) good.AnswerDump(seq, 3);
    });
    auto capture = collector_->CaptureProcess(id, In(kLongNs));
    helper.join();
    EXPECT_LT(MonotonicNs() - begin_ns, 5 * kNsPerSecond);
    ASSERT_TRUE(capture.has_value()) << capture.error().message;
    EXPECT_EQ((*capture)->threads.size(), 3u);
    EXPECT_FALSE((*capture)->partial);
    good.Close();
    ASSERT_TRUE(Eventually([&] { return Find(id).id.empty(); }));
  }

  std::string dir_ = "/tmp/collector-XXXXXX";
  std::unique_ptr<Collector> collector_;
};

}  // namespace stackd

// The perf map of a process, as its agent passes it.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/collect/testing/collector_fixture.h"

namespace stackd {
namespace {

class PerfMapTest : public CollectorFixture {
 protected:
  PerfMapTest() {
    StartAndStoreCrashes();
    agent_ = std::make_unique<FakeAgent>(dir_);
    EXPECT_EQ(agent_->Register(Hello(5)), "");
    EXPECT_TRUE(AwaitProcesses(1));
  }

  // Gives what was read where the process answers with `fds`, or "none", or "late".
  std::string Read(std::vector<Fd> fds, const std::function<void()>& meanwhile = {}, int64_t time_ns = kLongNs) {
    std::thread helper([&] {
      const auto received = agent_->Receive();
      if (!received || received->type() != STACKD_MSG_OPEN_FILE) return;
      const auto request = received->As<stackd_open_file>();
      EXPECT_STREQ(request.path, "/tmp/perf-5.map");
      agent_->SendFile(request.request_id, fds.empty() ? -ENOENT : 0, fds);
    });
    const auto text = std::make_shared<std::string>("none");
    const auto read = [text, meanwhile](const Fd& file) {
      text->resize(100);
      text->resize(static_cast<size_t>(pread(file.get(), text->data(), text->size(), 0)));
      if (meanwhile) meanwhile();
    };
    const bool in_time = collector_->ReadPerfMap("5-1000", In(time_ns).deadline_ns, read);
    helper.join();
    return in_time ? *text : "late";
  }

  std::unique_ptr<FakeAgent> agent_;
};

TEST_F(PerfMapTest, ARegularFileIsRead) {
  std::vector<Fd> fds;
  fds.emplace_back(memfd_create("perf-5.map", MFD_CLOEXEC));
  ASSERT_EQ(write(fds[0].get(), "10 20 f\n", 8), 8);
  EXPECT_EQ(Read(std::move(fds)), "10 20 f\n");
  EXPECT_EQ(Read({}), "none");
}

TEST_F(PerfMapTest, WhatIsNoRegularFileIsNotRead) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd other(ends[1]);
  std::vector<Fd> fds;
  fds.emplace_back(ends[0]);
  EXPECT_EQ(Read(std::move(fds)), "none");
}

TEST_F(PerfMapTest, AFileThatIsNotReadInTimeIsGivenUp) {
  std::promise<void> go_on;
  const auto gate = go_on.get_future().share();
  std::vector<Fd> fds;
  fds.emplace_back(memfd_create("perf-5.map", MFD_CLOEXEC));
  EXPECT_EQ(Read(std::move(fds), [gate] { gate.wait(); }, 50 * kNsPerMs), "late");
  go_on.set_value();
}

}  // namespace
}  // namespace stackd

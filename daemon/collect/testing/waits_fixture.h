// A process whose agent does as it is told, and whose memory, threads and fds are those of the test.
#pragma once

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/collect/testing/collector_fixture.h"

namespace stackd {

inline constexpr char kId[] = "5-1000";

inline stackd_syscall Call(uint32_t number, std::vector<uint64_t> arguments) {
  stackd_syscall call{.number = number, .known = STACKD_SYSCALL_KNOWN | ((1u << arguments.size()) - 1), .arguments = {}};
  std::ranges::copy(arguments, call.arguments);
  return call;
}
template <typename Word>
stackd_syscall FutexCall(const Word* word) {
  return Call(SYS_futex, {reinterpret_cast<uint64_t>(word), FUTEX_WAIT_PRIVATE});
}

// A mutex of glibc's that thread `owner` holds and another waits for.
struct alignas(8) Mutex {
  uint32_t lock = 2, count = 0;
  uint32_t owner;
  uint32_t users = 1, kind = 0, more[5] = {};
};

class WaitsTest : public CollectorFixture {
 protected:
  WaitsTest() { StartAndStoreCrashes(); }

  void Connect(const stackd_hello& hello = Hello(5), const std::vector<Fd>& files = OwnFiles()) {
    agent_ = std::make_unique<FakeAgent>(dir_);
    ASSERT_EQ(agent_->Register(hello, files), "");
    while (collector_->Processes().empty()) sched_yield();
  }

  // Captures a process whose threads, of tids from 1, are in `calls`; then `after` is done by its helper.
  std::shared_ptr<Capture> CaptureOf(const std::vector<stackd_syscall>& calls, const std::function<void()>& after = [] {}) {
    std::atomic<bool> is_over = false;
    std::thread helper([&] {
      uint32_t seq = agent_->AwaitCommand();
      agent_->Begin(seq, static_cast<uint32_t>(calls.size()));
      uint32_t tid = 0;
      for (const stackd_syscall& call : calls) {
        tid++;
        while (!agent_->WriteThread(seq, tid, call)) sched_yield();
      }
      agent_->Finish(seq);
      after();
      agent_->AnswerFilesUntil(is_over);
    });
    request_.deadline_ns = MonotonicNs() + kLongNs;
    const int64_t begin_ns = MonotonicNs();
    auto capture = collector_->CaptureProcess(kId, request_);
    took_ns_ = MonotonicNs() - begin_ns;
    is_over = true;
    helper.join();
    EXPECT_TRUE(capture.has_value());
    return capture ? *capture : nullptr;
  }

  std::unique_ptr<FakeAgent> agent_;
  CaptureRequest request_;
  int64_t took_ns_ = 0;
};

}  // namespace stackd

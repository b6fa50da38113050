// A detector over processes that do not exist, in a time that passes at once.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/detect/watch/detector.h"
#include "daemon/testing/fake_probe.h"

namespace stackd {

inline constexpr int32_t kHelper = 99;

class DetectorTest : public testing::Test {
 protected:
  // Lets time pass, with a look whenever one is due. `each_look` is what the processes do before it.
  void Pass(int64_t seconds, const std::function<void()>& each_look = [] {}) { PassNs(seconds * kNsPerSecond, each_look); }
  void PassNs(int64_t time_ns, const std::function<void()>& each_look) {
    const int64_t end_ns = now_ns_ + time_ns;
    while (now_ns_ < end_ns) {
      each_look();
      const int64_t next_ns = detector_->Look(now_ns_);
      // Where a look took long, some are overdue.
      if (waited_ns_ == 0) {
        ASSERT_GT(next_ns, now_ns_);
      }
      now_ns_ = std::min(std::max(next_ns, now_ns_ + std::exchange(waited_ns_, 0)), end_ns);
    }
  }

  void Start(Rules rules = BuiltInRules()) {
    DetectorOptions options{.rules = std::move(rules),
                            .on_suspicion =
                                [this](SharedSuspicion suspicion) {
                                  found_at_ns_.push_back(now_ns_);
                                  found_.push_back(std::move(suspicion));
                                },
                            .on_gone = [this](const std::string& id) { gone_.push_back(id); },
                            .clock = [this] { return now_ns_ + waited_ns_; },
                            .cpu_clock = [this] { return cpu_ns_; }};
    detector_ = std::make_unique<Detector>(&probe_, std::move(options));
  }

  // Two threads that wait for each other, one that waits for work, and the helper.
  FakeProcess& AddDeadlock(const std::string& id = "7-1") {
    FakeProcess& process = AddIdle(id);
    process.AddMutexWait(11, 0xa0, 12);
    process.AddMutexWait(12, 0xb0, 11);
    return process;
  }
  FakeProcess& AddIdle(const std::string& id = "7-1") {
    FakeProcess& process = probe_.Add(id);
    process.AddThread(7, CallOf(SYS_epoll_wait));
    process.AddThread(8, FutexCall(0xc0, FUTEX_WAIT_BITSET_PRIVATE));
    process.futexes[0xc0] = {.avma = 0xc0, .value = 4};
    process.AddThread(kHelper, CallOf(SYS_recvmsg));
    process.helper_tid = kHelper;
    return process;
  }

  FakeProbe probe_;
  std::vector<SharedSuspicion> found_;
  std::vector<int64_t> found_at_ns_;
  std::vector<std::string> gone_;
  int64_t now_ns_ = 1000 * kNsPerSecond;
  int64_t waited_ns_ = 0;  // for answers, within looks
  int64_t cpu_ns_ = 0;
  std::unique_ptr<Detector> detector_;
};

}  // namespace stackd

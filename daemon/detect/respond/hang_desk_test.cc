#include "daemon/detect/respond/hang_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

using testing::ElementsAre;

class HangDeskTest : public testing::Test {
 protected:
  void Start() {
    HangDeskOptions options;
    options.create_dump = [this](const std::string& id, const CaptureRequest& request) -> Result<HangDump> {
      std::lock_guard lock(mutex_);
      health_when_dumped_ = health_.Of("victim");
      request_ = request;
      if (fails_) return Error(Code::kNotFound, "gone");
      dumped_.push_back(id);
      return HangDump{"processes/" + id + "/dumps/1", "it hangs", true, true};
    };
    options.run = [this](const std::string& program, const HangDump& dump) {
      std::lock_guard lock(mutex_);
      runs_.push_back(program + " " + dump.name);
    };
    options.clock_ns = [this] { return now_ns_.load(); };
    desk_ = std::make_unique<HangDesk>(&health_, options);
  }

  SharedSuspicion MakeSuspicion(HangCause cause, int64_t count = 10) {
    Rule rule;
    rule.name = "rule";
    rule.run = "/bin/page";
    rule.count = count;
    auto suspicion = std::make_shared<Suspicion>();
    suspicion->process_id = "7-1";
    suspicion->process_name = "victim";
    suspicion->subject = "subject " + std::to_string(++subjects_);
    suspicion->hang = {.cause = cause, .explanation = "it hangs", .rule = "rule"};
    suspicion->rule = std::make_shared<const Rule>(rule);
    suspicion->seen_ns = now_ns_;
    return suspicion;
  }

  void AwaitCounter(const std::string& name, int64_t value) {
    while (desk_->Counters().at(name) < value) std::this_thread::yield();
  }
  void AwaitHealth(Health health) {
    while (health_.Of("victim") != health) std::this_thread::yield();
  }

  std::mutex mutex_;
  std::vector<std::string> dumped_, runs_;
  std::atomic<bool> fails_ = false;
  std::atomic<int64_t> now_ns_ = 1000 * kNsPerSecond;
  Health health_when_dumped_ = Health::kUnknown;
  CaptureRequest request_;
  int subjects_ = 0;
  ProcessHealth health_{[] {
    ProcessDescription process;
    process.id = "7-1";
    process.display_name = "victim";
    return std::vector<ProcessDescription>{process};
  }};
  std::unique_ptr<HangDesk> desk_;
};

TEST_F(HangDeskTest, TheDumpIsStoredBeforeTheProcessIsCalledIll) {
  Start();
  EXPECT_EQ(health_.Of("victim"), Health::kWell);
  EXPECT_EQ(health_.Of("nobody"), Health::kUnknown);
  const SharedSuspicion suspicion = MakeSuspicion(HangCause::kDeadlock);
  desk_->Add(suspicion);
  AwaitHealth(Health::kIll);
  EXPECT_EQ(health_when_dumped_, Health::kWell);
  EXPECT_THAT(dumped_, ElementsAre("7-1"));
  EXPECT_THAT(runs_, ElementsAre("/bin/page processes/7-1/dumps/1"));
  EXPECT_EQ(request_.trigger, Trigger::kHang);
  EXPECT_EQ(request_.hang->explanation, "it hangs");
  suspicion->over = true;
  EXPECT_EQ(health_.Of("victim"), Health::kWell);
}

TEST_F(HangDeskTest, AProcessIsIllAlsoIfItsDumpFailed) {
  fails_ = true;
  Start();
  desk_->Add(MakeSuspicion(HangCause::kHeartbeatMissed));
  AwaitHealth(Health::kIll);
  EXPECT_EQ(desk_->Counters().at("hang_dumps_failed"), 1);
}

TEST_F(HangDeskTest, AStandstillOrASpinIsDumpedButNoReasonToKillTheProcess) {
  Start();
  desk_->Add(MakeSuspicion(HangCause::kNoProgress));
  desk_->Add(MakeSuspicion(HangCause::kSpin));
  AwaitCounter("hang_dumps", 2);
  desk_.reset();
  EXPECT_EQ(health_.Of("victim"), Health::kWell);
}

TEST_F(HangDeskTest, AProcessWhoseDumpIsPutOffIsIllAllTheSame) {
  Start();
  desk_->Add(MakeSuspicion(HangCause::kSpin, 1));
  AwaitCounter("hang_dumps", 1);
  desk_->Add(MakeSuspicion(HangCause::kDeadlock, 1));
  AwaitCounter("hang_dumps_deferred", 1);
  EXPECT_EQ(health_.Of("victim"), Health::kWell);
  now_ns_ += 5 * kNsPerSecond;
  AwaitHealth(Health::kIll);
  EXPECT_EQ(desk_->Counters().at("hang_dumps_waiting"), 1);
  now_ns_ += 60 * kNsPerSecond;
  AwaitCounter("hang_dumps", 2);
}

TEST_F(HangDeskTest, OneThatGoesOnIsNotDumpedAgainButIllAgain) {
  Start();
  const SharedSuspicion first = MakeSuspicion(HangCause::kHeartbeatMissed);
  desk_->Add(first);
  AwaitHealth(Health::kIll);
  first->over = true;
  const SharedSuspicion second = MakeSuspicion(HangCause::kHeartbeatMissed);
  second->subject = first->subject;
  desk_->Add(second);
  EXPECT_EQ(health_.Of("victim"), Health::kIll);
  EXPECT_EQ(desk_->Counters().at("hangs_in_cooldown"), 1);
  EXPECT_EQ(desk_->Counters().at("hang_dumps"), 1);
}

}  // namespace
}  // namespace stackd

#include "daemon/detect/watch/heartbeat_detector.h"

#include "daemon/detect/watch/testing/detector_fixture.h"

namespace stackd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using HeartbeatDetectorTest = DetectorTest;

TEST_F(HeartbeatDetectorTest, ProcessesThatDoNotAnswerDoNotHideWhatIsWrongWithOthers) {
  Start();
  probe_.on_sample = [this](const std::string& id) {
    if (probe_.processes.at(id).sample_error) waited_ns_ += 300 * kNsPerMs;
  };
  for (int i = 0; i < 50; ++i) {
    FakeProcess& hostile = AddIdle("hostile " + std::to_string(i));
    hostile.sample_error = Status{Code::kDeadlineExceeded, "no answer"};
    hostile.heartbeats = {{.name = "loop", .tid = 7, .limit_ns = 10 * kNsPerMs, .beats = 1}};
  }
  FakeProcess& victim = AddIdle("victim");
  victim.heartbeats = {{.name = "loop", .tid = 8, .limit_ns = 5 * kNsPerSecond, .beats = 3}};
  int64_t looks = 0;
  // They beat and stop, and their threads run, as they like.
  const auto annoy = [&] {
    if (++looks % 5 != 0) return;
    for (auto& [id, process] : probe_.processes) {
      if (!process.sample_error) continue;
      process.heartbeats[0].beats += 1;
      process.threads[7].Run();
    }
  };
  // Varies which process is asked next when the victim hangs.
  for (int64_t seconds : {120, 31, 47, 13, 59}) {
    Pass(seconds, [&] {
      annoy();
      ++victim.heartbeats[0].beats;
    });
    const auto is_of_victim = [](const auto& suspicion) { return suspicion->process_id == "victim"; };
    ASSERT_TRUE(std::ranges::none_of(found_, is_of_victim));
    const int64_t begin_ns = now_ns_;
    Pass(10, annoy);
    const auto found = std::ranges::find_if(found_, is_of_victim);
    ASSERT_NE(found, found_.end()) << seconds;
    EXPECT_EQ((*found)->hang.cause, HangCause::kHeartbeatMissed);
    EXPECT_LE(found_at_ns_[found - found_.begin()] - begin_ns, 6 * kNsPerSecond);
    found_.clear();
    found_at_ns_.clear();
  }
}

TEST_F(HeartbeatDetectorTest, AProcessThatDoesNotAnswerButRunsMissesItsHeartbeat) {
  Start();
  FakeProcess& process = AddIdle();
  process.sample_error = Status{Code::kDeadlineExceeded, "no answer"};
  process.heartbeats = {{.name = "a", .tid = 7, .limit_ns = kNsPerSecond, .beats = 1, .cell = 1},
                        {.name = "b", .tid = 8, .limit_ns = 3 * kNsPerSecond, .beats = 1, .cell = 2}};
  const auto run = [&] { process.threads[7].Run(); };
  probe_.on_sample = [&](const std::string&) { run(); };
  const int64_t begin_ns = now_ns_;
  Pass(10, run);
  ASSERT_THAT(found_, SizeIs(2));
  EXPECT_LE(found_at_ns_[1] - begin_ns, 4 * kNsPerSecond) << "while it is not asked";
  EXPECT_LE(process.samples_asked, 4);
}

TEST_F(HeartbeatDetectorTest, AnAnswerThatGaveWayToADumpExcusesNobody) {
  Start();
  FakeProcess& process = AddIdle();
  process.sample_error = Status{Code::kAborted, "a dump went first"};
  process.heartbeats = {{.name = "loop", .tid = 7, .limit_ns = kNsPerSecond, .beats = 1}};
  Pass(5);
  EXPECT_THAT(found_, IsEmpty());
  process.sample_error.reset();
  Pass(1);
  EXPECT_THAT(found_, SizeIs(1));
}

TEST_F(HeartbeatDetectorTest, AMissedHeartbeatIsFoundWithinASecondOfItsLimit) {
  Start();
  FakeProcess& process = AddIdle();
  process.heartbeats = {{.name = "loop", .tid = 8, .limit_ns = 5 * kNsPerSecond, .beats = 3, .cell = 2}};
  Pass(20, [&] { ++process.heartbeats[0].beats; });
  ASSERT_THAT(found_, IsEmpty());
  const int64_t last_beat_ns = now_ns_;
  Pass(60);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_GT(found_at_ns_[0] - last_beat_ns, 4500 * kNsPerMs);
  EXPECT_LE(found_at_ns_[0] - last_beat_ns, 6 * kNsPerSecond);
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kHeartbeatMissed);
  EXPECT_EQ(found_[0]->hang.heartbeat, "loop");
  EXPECT_EQ(found_[0]->hang.tid, 8);
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("its limit is 5 s; its thread 8 sleeps"));
  EXPECT_FALSE(found_[0]->over);
  ++process.heartbeats[0].beats;
  Pass(1);
  EXPECT_TRUE(found_[0]->over);
}

TEST_F(HeartbeatDetectorTest, AHeartbeatThatBeganAndNeverCameAgainIsMissed) {
  Start();
  FakeProcess& process = AddIdle();
  Pass(5);
  process.heartbeats = {{.name = "once", .tid = 8, .limit_ns = 100 * kNsPerMs, .beats = 1}};
  const int64_t beat_ns = now_ns_;
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_LE(found_at_ns_[0] - beat_ns, 1100 * kNsPerMs);
}

}  // namespace
}  // namespace stackd

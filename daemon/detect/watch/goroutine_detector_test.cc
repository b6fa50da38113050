#include "daemon/detect/watch/goroutine_detector.h"

#include "daemon/detect/watch/testing/detector_fixture.h"

namespace stackd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class GoroutineDetectorTest : public DetectorTest {
 protected:
  FakeProcess& AddGo(std::vector<uint64_t> stuck) {
    FakeProcess& process = AddIdle();
    process.goroutines = {.is_go = true, .has_memory = true, .count = 20, .stuck = std::move(stuck)};
    return process;
  }
};

TEST_F(GoroutineDetectorTest, GoroutinesThatStayStuckAreADeadlockWithin10S) {
  Start();
  AddGo({18, 19});
  const int64_t begin_ns = now_ns_;
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_LT(found_at_ns_[0] - begin_ns, 10 * kNsPerSecond);
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kDeadlock);
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("2 goroutines wait for locks that no other goroutine has"));
  EXPECT_TRUE(found_[0]->is_inferred) << "the health stays";
  Pass(600);
  EXPECT_THAT(found_, SizeIs(1));
}

TEST_F(GoroutineDetectorTest, OneThatBecomesStuckLaterIsFoundWithin10S) {
  Start();
  FakeProcess& process = AddGo({});
  Pass(100);
  process.goroutines.stuck = {18};
  process.threads[7].Run();
  const int64_t begin_ns = now_ns_;
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_LT(found_at_ns_[0] - begin_ns, 10 * kNsPerSecond);
}

TEST_F(GoroutineDetectorTest, OthersEachTimeAreNone) {
  Start();
  FakeProcess& process = AddGo({18});
  Pass(100, [&] {
    process.threads[7].Run();
    process.goroutines.stuck[0]++;
  });
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(GoroutineDetectorTest, ItIsOverWhenTheyGoOn) {
  Start();
  FakeProcess& process = AddGo({18});
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  process.goroutines.stuck = {};
  process.threads[7].Run();
  Pass(10);
  EXPECT_TRUE(found_[0]->over);
}

TEST_F(GoroutineDetectorTest, AProgramWhereNoThreadRunsIsReadOnce) {
  Start();
  FakeProcess& process = AddGo({});
  Pass(600);
  EXPECT_LE(process.goroutines_asked, 2);
}

TEST_F(GoroutineDetectorTest, AProgramWithManyGoroutinesIsReadLessOften) {
  for (size_t count : {100u, 20'000u}) {
    probe_.processes.clear();
    Start();
    FakeProcess& process = AddGo({});
    process.goroutines.count = count;
    Pass(600, [&] { process.threads[7].Run(); });
    EXPECT_LE(process.goroutines_asked, count == 100 ? 151 : 11);
    EXPECT_GE(process.goroutines_asked, 9);
  }
}

TEST_F(GoroutineDetectorTest, AnotherLanguageIsAskedOnce) {
  Start();
  FakeProcess& process = AddIdle();
  Pass(600, [&] { process.threads[7].Run(); });
  EXPECT_EQ(process.goroutines_asked, 1);
}

// The agent passes it with the first capture.
TEST_F(GoroutineDetectorTest, MemoryThatHasNotComeIsAskedForOnce) {
  Start();
  FakeProcess& process = AddGo({});
  process.goroutines.has_memory = false;
  Pass(600, [&] { process.threads[7].Run(); });
  EXPECT_EQ(process.cycles_asked, 1);
  EXPECT_EQ(process.goroutines_asked, 2);
}

}  // namespace
}  // namespace stackd

#include "client/commands/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

v1::Process Process(const std::string& name, v1::Process::Health health, int64_t cpu_s) {
  v1::Process process;
  process.set_name("processes/" + name);
  process.set_display_name(name);
  process.set_health(health);
  process.mutable_cpu_time()->set_seconds(cpu_s);
  return process;
}

std::vector<std::string> NamesOf(const std::vector<TopRow>& rows) {
  std::vector<std::string> names;
  for (const TopRow& row : rows) names.push_back(row.process.display_name());
  return names;
}

TEST(TopScreen, ShowsFirstWhatHangsThenWhatIsBusy) {
  const Look before{{Process("idle", v1::Process::WELL, 9), Process("busy", v1::Process::WELL, 9)}, kNsPerSecond};
  const Look now{{Process("idle", v1::Process::WELL, 9), Process("busy", v1::Process::WELL, 12),
                  Process("unknown", v1::Process::HEALTH_UNSPECIFIED, 50), Process("slow", v1::Process::SUSPICIOUS, 1),
                  Process("stuck", v1::Process::HUNG, 1)},
                 3 * kNsPerSecond};
  const std::vector<TopRow> rows = TopRows(before, now);
  EXPECT_THAT(NamesOf(rows), ElementsAre("stuck", "slow", "busy", "idle", "unknown"));
  EXPECT_DOUBLE_EQ(*rows[2].cpu_percent, 150);
  EXPECT_FALSE(rows[0].cpu_percent) << "it was not there before";
  EXPECT_EQ(TopSummary(rows), "5 processes: 1 hung, 1 suspicious, 2 well, 1 not looked at; 150 % of a processor");
  EXPECT_EQ(TopSummary({}), "0 processes; 0 % of a processor");
}

TEST(TopScreen, SaysWhatHangsAndForHowLong) {
  v1::Process process = Process("stuck", v1::Process::HUNG, 1);
  for (int i = 0; i < 2; ++i) {
    process.add_hangs()->set_explanation("thread 12 waits for the lock 0x7f00");
    process.mutable_hangs(i)->mutable_duration()->set_seconds(75);
  }
  const std::vector<std::string> table = TopTable(TopRows({}, {{process}, kNsPerSecond}));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_THAT(table[1], HasSubstr("for 1m15s: thread 12 waits for the lock 0x7f00 (and 1 more)"));
}

TEST(TopScreen, NamesThatATerminalWouldObeyAreWrittenOut) {
  v1::Process process = Process("a\x1b[2J\nb\xe2\x80\xae", v1::Process::HUNG, 1);
  process.add_hangs()->set_explanation("\x1b]0;x\x07");
  (*process.mutable_resource_attributes())["k8s.pod.name"] = "p\x9b";
  const std::vector<std::string> table = TopTable(TopRows({}, {{process}, kNsPerSecond}));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_THAT(table[1], HasSubstr("a\\x1b[2J\\x0ab\\u{202e}"));
  EXPECT_THAT(table[1], Not(HasSubstr("\x1b")));
  EXPECT_THAT(table[1], Not(HasSubstr("\x07")));
}

TEST(TopScreen, MovesWithinTheList) {
  EXPECT_EQ(Moved(0, Key::kUp, 5, 3), 0u);
  EXPECT_EQ(Moved(3, Key::kDown, 5, 3), 4u);
  EXPECT_EQ(Moved(4, Key::kDown, 5, 3), 4u);
  EXPECT_EQ(Moved(4, Key::kPageUp, 5, 3), 1u);
  EXPECT_EQ(Moved(0, Key::kEnd, 5, 3), 4u);
  EXPECT_EQ(Moved(4, Key::kHome, 5, 3), 0u);
  EXPECT_EQ(Moved(4, Key::kNone, 2, 3), 1u) << "the list became shorter";
  EXPECT_EQ(Moved(0, Key::kEnd, 0, 3), 0u);
}

TEST(TopScreen, ShowsTheLineOfTheCursor) {
  EXPECT_EQ(FirstShown(0, 2, 5, 3), 0u);
  EXPECT_EQ(FirstShown(0, 4, 5, 3), 2u);
  EXPECT_EQ(FirstShown(2, 1, 5, 3), 1u);
  EXPECT_EQ(FirstShown(4, 4, 5, 3), 2u) << "no empty lines at the end";
  EXPECT_EQ(FirstShown(3, 0, 1, 3), 0u);
}

}  // namespace
}  // namespace stackd

#include "daemon/serve/requests/compared_dumps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string NameOf(int number, int pid = 7) {
  return "processes/" + std::to_string(pid) + "-100/dumps/d" + std::to_string(number);
}

class ComparedDumpsTest : public testing::Test {
 protected:
  void Put(const std::string& name) {
    v1::Dump dump;
    dump.set_name(name);
    dump.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond);
    ASSERT_TRUE(store_->Put(dump));
  }

  std::unique_ptr<DumpStore> store_ = std::move(*DumpStore::Open({.file = ":memory:"}));
};

TEST_F(ComparedDumpsTest, AreTheLastTwoOfTheNewestProcess) {
  EXPECT_EQ(ChooseComparedDumps(*store_, "", "").error().reason, "DUMP_NOT_FOUND");
  Put(NameOf(1));
  Put(NameOf(2));
  Put(NameOf(3, 8));
  auto only_one = ChooseComparedDumps(*store_, "", "");
  EXPECT_EQ(only_one.error().reason, "DUMP_NOT_FOUND");
  EXPECT_THAT(only_one.error().message, HasSubstr("no earlier dump of the process of " + NameOf(3, 8)));
  Put(NameOf(4));
  auto chosen = ChooseComparedDumps(*store_, "", "");
  EXPECT_EQ(chosen->before, NameOf(2));
  EXPECT_EQ(chosen->after, NameOf(4));
  EXPECT_THAT(chosen->between, IsEmpty()) << "that of the other process is not";
}

TEST_F(ComparedDumpsTest, FillInWhatIsNotNamed) {
  for (int number = 1; number <= 4; ++number) Put(NameOf(number));
  Put(NameOf(5, 8));
  EXPECT_EQ(ChooseComparedDumps(*store_, "", NameOf(3))->before, NameOf(2));
  auto chosen = ChooseComparedDumps(*store_, NameOf(1), "");
  EXPECT_EQ(chosen->after, NameOf(4));
  EXPECT_THAT(chosen->between, ElementsAre(NameOf(2), NameOf(3)));
  EXPECT_THAT(ChooseComparedDumps(*store_, NameOf(4), "").error().message, HasSubstr("no later dump"));
  EXPECT_EQ(ChooseComparedDumps(*store_, "", NameOf(1)).error().reason, "DUMP_NOT_FOUND");
}

TEST_F(ComparedDumpsTest, AreNotThereOrNoNames) {
  Put(NameOf(1));
  for (const auto& [before, after] : {std::pair{NameOf(9, 9), std::string()}, {std::string(), NameOf(9)}}) {
    EXPECT_THAT(ChooseComparedDumps(*store_, before, after).error().message, HasSubstr("no dump")) << before << after;
  }
  EXPECT_EQ(ChooseComparedDumps(*store_, "nonsense", "").error().reason, "BAD_NAME");
  EXPECT_EQ(ChooseComparedDumps(*store_, "", "nonsense").error().reason, "BAD_NAME");
}

TEST_F(ComparedDumpsTest, AreInOrderOfTimeHoweverTheyAreNamed) {
  for (int number = 1; number <= 3; ++number) Put(NameOf(number));
  auto chosen = ChooseComparedDumps(*store_, NameOf(3), NameOf(1));
  EXPECT_EQ(chosen->before, NameOf(1));
  EXPECT_EQ(chosen->after, NameOf(3));
  EXPECT_THAT(chosen->between, ElementsAre(NameOf(2)));
  EXPECT_EQ(ChooseComparedDumps(*store_, NameOf(3), NameOf(3)).error().reason, "BAD_NAME");
}

TEST_F(ComparedDumpsTest, AreFewOfALongSeries) {
  for (int number = 1; number <= 100; ++number) Put(NameOf(number));
  auto chosen = ChooseComparedDumps(*store_, NameOf(1), NameOf(100));
  ASSERT_EQ(chosen->between.size(), 8u);
  EXPECT_EQ(chosen->between.front(), NameOf(2));
  EXPECT_EQ(chosen->between.back(), NameOf(87));
}

TEST_F(ComparedDumpsTest, MayBeOnesThatTheStoreNeverTook) {
  Put(NameOf(1));
  auto chosen = ChooseComparedDumps(*store_, NameOf(1), NameOf(2));
  EXPECT_EQ(chosen->before, NameOf(1));
  EXPECT_EQ(chosen->after, NameOf(2));
}

}  // namespace
}  // namespace stackd

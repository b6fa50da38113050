#include "daemon/managed/go/go_layout.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

TEST(GoLayoutTest, KnowsReleasesCandidatesAndExperiments) {
  for (const char* version : {"go1.21.13", "go1.22", "go1.26rc1", "go1.25.5 X:nodwarf5", "go1.23.12-custom"}) {
    EXPECT_NE(FindGoLayout(version), nullptr) << version;
  }
}

TEST(GoLayoutTest, SaysOfOtherVersionsThatNothingIsKnown) {
  for (const char* version : {"", "go1.", "go1.20.14", "go1.27", "go2.0", "devel go1.26-abc", "1.26", "go1.x", "go1.261"}) {
    EXPECT_EQ(FindGoLayout(version), nullptr) << version;
  }
}

// The numbers are those of the constants in runtime/runtime2.go of each version.
TEST(GoLayoutTest, CountsWaitReasonsAsEachVersionDoes) {
  struct {
    const char* version;
    uint8_t number;
    const char* text;
  } const kReasons[] = {
      {"go1.21.13", 0, ""},
      {"go1.21.13", 10, "select (no cases)"},
      {"go1.21.13", 22, "sync.RWMutex.RLock"},
      {"go1.21.13", 31, "stopping the world"},
      {"go1.22.12", 36, "coroutine"},
      {"go1.24.13", 43, "select (synctest)"},
      {"go1.25.5", 14, "chan receive"},
      {"go1.25.5", 46, "cleanup wait"},
      {"go1.26.8", 14, "sleep"},
      {"go1.26.8", 18, "select"},
      {"go1.26.8", 19, "chan receive"},
      {"go1.26.8", 22, "sync.Mutex.Lock"},
      {"go1.26.8", 46, "cleanup wait"},
  };
  for (const auto& reason : kReasons) {
    EXPECT_EQ(GoWaitReason(*FindGoLayout(reason.version), reason.number), reason.text)
        << reason.version << " " << int{reason.number};
  }
}

TEST(GoLayoutTest, HasNoWaitReasonBehindTheLast) {
  EXPECT_EQ(GoWaitReason(*FindGoLayout("go1.21.13"), 32), "");
  EXPECT_EQ(GoWaitReason(*FindGoLayout("go1.26.8"), 255), "");
}

}  // namespace
}  // namespace stackd

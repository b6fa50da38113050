#include "daemon/serve/requests/resolve_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ProcessDescription Process(const std::string& id, int pid, const std::string& name) {
  return {.id = id, .pid = pid, .display_name = name};
}

const std::vector<ProcessDescription> kThree{Process("7-100", 7, "checkout"), Process("8-200", 8, "worker"),
                                             Process("9-300", 9, "worker")};

TEST(ResolveProcess, TakesAResourceNameAnIdAPidOrADisplayName) {
  for (const char* typed : {"processes/7-100", "7-100", "7", "checkout"}) {
    ProcessChoice choice = ResolveProcess(typed, kThree);
    ASSERT_NE(choice.process, nullptr) << typed;
    EXPECT_EQ(choice.process->id, "7-100");
  }
}

TEST(ResolveProcess, TakesNothingForTheOnlyOne) {
  std::vector<ProcessDescription> one{kThree[0]};
  ASSERT_NE(ResolveProcess("", one).process, nullptr);
  EXPECT_EQ(ResolveProcess("", kThree).error.reason, "PROCESS_AMBIGUOUS");
  ProcessChoice none = ResolveProcess("", {});
  EXPECT_EQ(none.error.reason, "NO_PROCESS");
  EXPECT_EQ(none.error.code, Code::kFailedPrecondition);
  EXPECT_THAT(none.error.message, HasSubstr("LD_PRELOAD"));
}

TEST(ResolveProcess, NamesAllWhoAreCalledSo) {
  ProcessChoice choice = ResolveProcess("worker", kThree);
  EXPECT_EQ(choice.process, nullptr);
  EXPECT_EQ(choice.error.code, Code::kFailedPrecondition);
  EXPECT_THAT(choice.candidates, ElementsAre("processes/8-200", "processes/9-300"));
  EXPECT_THAT(choice.error.message, HasSubstr("processes/9-300 (worker)"));
}

TEST(ResolveProcess, SuggestsWhatIsNear) {
  ProcessChoice choice = ResolveProcess("chekout", kThree);
  EXPECT_EQ(choice.error.reason, "PROCESS_NOT_FOUND");
  EXPECT_THAT(choice.error.message, HasSubstr("did you mean checkout?"));
}

TEST(ResolveProcess, ListsWhatThereIsIfNothingIsNear) {
  EXPECT_THAT(ResolveProcess("zzzzzzzz", kThree).error.message, HasSubstr("there is processes/7-100 (checkout), "));
}

TEST(ResolveProcess, DoesNotTakeAResourceNameForAPid) { EXPECT_EQ(ResolveProcess("processes/7", kThree).process, nullptr); }

TEST(ResolveProcess, StaysShortForHostileNames) {
  std::vector<ProcessDescription> many;
  for (int i = 0; i < 1000; ++i) many.push_back(Process(std::to_string(i) + "-1", i, std::string(63, 'x') + "\xff"));
  EXPECT_LT(ResolveProcess(std::string(1 << 20, 'y'), many).error.message.size(), 3000u);
  EXPECT_LT(ResolveProcess("", many).error.message.size(), 3000u);
}

}  // namespace
}  // namespace stackd

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

ProcessDescription InPod(const std::string& id, const std::string& name, const std::string& pod,
                         const std::string& container) {
  ProcessDescription process = Process(id, 1, name);
  process.resource_attributes = {
      {"k8s.pod.name", pod}, {"k8s.container.name", container}, {"service.name", pod.substr(0, pod.find('-'))}};
  return process;
}

const std::vector<ProcessDescription> kPods{InPod("1-10", "java", "checkout-5d8f", "app"),
                                            InPod("1-20", "nginx", "checkout-5d8f", "proxy"),
                                            InPod("1-30", "nginx", "cart-77c9", "proxy")};

TEST(ResolveProcess, TakesAPodAWorkloadOrAContainer) {
  for (const char* typed : {"checkout/app", "checkout-5d8f/app", "checkout/java", "app", "java"}) {
    ProcessChoice choice = ResolveProcess(typed, kPods);
    ASSERT_NE(choice.process, nullptr) << typed << ": " << choice.error.message;
    EXPECT_EQ(choice.process->id, "1-10");
  }
  EXPECT_EQ(ResolveProcess("cart", kPods).process->id, "1-30");
  std::vector<ProcessDescription> deployed = kPods;
  deployed[2].resource_attributes["k8s.deployment.name"] = "basket";
  EXPECT_EQ(ResolveProcess("basket/nginx", deployed).process->id, "1-30");
}

TEST(ResolveProcess, SaysWhereTheProcessesOfOneNameAre) {
  ProcessChoice choice = ResolveProcess("checkout", kPods);
  EXPECT_EQ(choice.error.reason, "PROCESS_AMBIGUOUS");
  EXPECT_THAT(
      choice.error.message,
      HasSubstr("name one of processes/1-10 (checkout-5d8f/app: java), processes/1-20 (checkout-5d8f/proxy: nginx)"));
  EXPECT_EQ(ResolveProcess("proxy", kPods).error.reason, "PROCESS_AMBIGUOUS");
  EXPECT_EQ(ResolveProcess("cart/app", kPods).error.reason, "PROCESS_NOT_FOUND");
  EXPECT_EQ(ResolveProcess("/", kPods).error.reason, "PROCESS_NOT_FOUND");
  EXPECT_THAT(ResolveProcess("chekout", kPods).error.message, HasSubstr("did you mean checkout?"));
}

// What a process calls itself was its name before places were.
TEST(ResolveProcess, PrefersTheNameOfAProcess) {
  std::vector<ProcessDescription> processes = kPods;
  processes.push_back(Process("9-1", 9, "checkout"));
  EXPECT_EQ(ResolveProcess("checkout", processes).process->id, "9-1");
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

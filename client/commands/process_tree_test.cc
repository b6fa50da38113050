#include "client/commands/process_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

v1::Process Process(int pid, int parent_pid, const std::string& container = "") {
  v1::Process process;
  process.set_name("processes/" + std::to_string(pid) + "-" + container);
  process.set_pid(pid);
  process.set_parent_pid(parent_pid);
  process.mutable_start_time()->set_seconds(1000 + pid);
  if (!container.empty()) (*process.mutable_resource_attributes())["k8s.container.name"] = container;
  return process;
}

std::vector<std::pair<int, int>> PidsAndDepths(const ProcessTree& tree) {
  std::vector<std::pair<int, int>> pids;
  for (const TreeMember& member : tree.members) pids.emplace_back(member.process.pid(), member.depth);
  return pids;
}

TEST(ProcessTree, HasTheDescendantsAndNoOthers) {
  const std::vector<v1::Process> processes{Process(9, 1), Process(12, 10), Process(30, 11), Process(10, 1),
                                           Process(11, 10)};
  using Pair = std::pair<int, int>;
  EXPECT_THAT(PidsAndDepths(TreeOf("processes/10-", processes)),
              ElementsAre(Pair(10, 0), Pair(11, 1), Pair(30, 2), Pair(12, 1)));
  EXPECT_THAT(PidsAndDepths(TreeOf("processes/30-", processes)), ElementsAre(Pair(30, 0)));
  EXPECT_THAT(TreeOf("processes/7-", processes).members, IsEmpty());
}

// Each container counts its pids from 1.
TEST(ProcessTree, KeepsContainersApart) {
  const std::vector<v1::Process> processes{Process(1, 0, "app"), Process(1, 0, "proxy"), Process(7, 1, "app"),
                                           Process(8, 1, "proxy")};
  EXPECT_EQ(TreeOf("processes/1-app", processes).members.size(), 2u);
  EXPECT_EQ(TreeOf("processes/1-app", processes).members[1].process.pid(), 7);
}

TEST(ProcessTree, LeavesOutWhatMayHaveSeveralParents) {
  std::vector<v1::Process> processes{Process(1, 0), Process(1, 0), Process(7, 1)};
  processes[1].set_name("processes/1-other");
  const ProcessTree tree = TreeOf("processes/1-", processes);
  EXPECT_EQ(tree.members.size(), 1u);
  EXPECT_THAT(tree.doubtful, ElementsAre("processes/7-"));
}

// Both pids were used again within the clock's resolution.
TEST(ProcessTree, HasEachMemberOfACircleOnce) {
  std::vector<v1::Process> processes{Process(5, 6), Process(6, 5)};
  for (v1::Process& process : processes) process.mutable_start_time()->set_seconds(1000);
  EXPECT_EQ(TreeOf("processes/5-", processes).members.size(), 2u);
}

TEST(ProcessTree, IsNoParentOfWhatBeganBefore) {
  std::vector<v1::Process> processes{Process(50, 1), Process(7, 50)};
  EXPECT_EQ(TreeOf("processes/50-", processes).members.size(), 1u);
}

}  // namespace
}  // namespace stackd

#include "daemon/serve/requests/dump_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace stackd {
namespace {

using testing::Contains;
using testing::HasSubstr;

// A dump of `groups` groups; the group n has `groups - n` threads, and each stack about 1 KiB.
v1::Dump DumpOf(int groups) {
  v1::Dump dump;
  dump.set_name("processes/7-100/dumps/20261121T031415926Z-1");
  dump.mutable_process()->set_display_name("checkout");
  dump.set_stored(true);
  for (int i = 0; i < groups; ++i) {
    v1::Stack* stack = dump.add_stacks();
    for (int j = 0; j < 10; ++j)
      stack->add_frames()->set_function(std::string(100, 'a') + std::to_string(i) + "_" + std::to_string(j));
    v1::StackGroup* group = dump.add_groups();
    *group->mutable_stack() = *stack;
    group->set_thread_count(groups - i);
    v1::Thread* thread = dump.add_threads();
    thread->set_tid(1000 + i);
    thread->set_stack(i);
  }
  dump.add_modules()->set_path("/bin/checkout");
  dump.add_lines("never stored");
  return dump;
}

TEST(DumpView, BasicHasNoStacks) {
  v1::Dump basic = ViewOf(DumpOf(3), v1::DUMP_VIEW_BASIC);
  EXPECT_EQ(basic.process().display_name(), "checkout");
  EXPECT_TRUE(basic.stored());
  EXPECT_EQ(basic.groups_size() + basic.threads_size() + basic.stacks_size() + basic.modules_size() + basic.lines_size(),
            0);
}

TEST(DumpView, GroupsHaveStacksAndCountsAndNoIds) {
  v1::Dump dump = DumpOf(3);
  v1::StackGroup* group = dump.mutable_groups(0);
  group->add_tids(7);
  group->add_thread_names("worker");
  group->add_task_ids(8);
  group->set_task_count(1);
  group->add_states("running");
  group->mutable_stack()->mutable_frames(0)->set_address("0x7f00");
  dump.add_findings()->add_tids(7);
  const v1::Dump groups = ViewOf(dump, v1::DUMP_VIEW_GROUPS);
  ASSERT_EQ(groups.groups_size(), 3);
  const v1::StackGroup& first = groups.groups(0);
  EXPECT_EQ(first.thread_count(), 3);
  EXPECT_EQ(first.task_count(), 1);
  EXPECT_EQ(first.states(0), "running");
  EXPECT_EQ(first.stack().frames(0).function(), dump.groups(0).stack().frames(0).function());
  EXPECT_EQ(first.tids_size() + first.thread_names_size() + first.task_ids_size(), 0);
  EXPECT_EQ(first.stack().frames(0).address(), "");
  EXPECT_EQ(groups.findings(0).tids_size(), 1);
  EXPECT_EQ(groups.threads_size() + groups.stacks_size() + groups.modules_size() + groups.lines_size(), 0);
}

TEST(DumpView, GroupsThatDoNotFitAreCounted) {
  const v1::Dump groups = ViewOf(DumpOf(100), v1::DUMP_VIEW_GROUPS, 50'000);
  EXPECT_LT(groups.ByteSizeLong(), 50'000u);
  EXPECT_GT(groups.groups_size(), 10);
  EXPECT_EQ(groups.groups_size() + groups.omitted_group_count(), 100);
  EXPECT_THAT(groups.notes(), Contains(HasSubstr("groups are left out")));
}

TEST(DumpView, LeavesOutTasksOfTheLargestGroupsFirstAndCountsAll) {
  v1::Dump dump;
  for (int i = 0; i < 2; ++i) dump.add_stacks()->add_frames()->set_function(i == 0 ? "main.wait" : "main.serve");
  for (int i = 0; i < 100'000; ++i) {
    v1::Task* task = dump.add_tasks();
    task->set_id(static_cast<uint64_t>(i));
    task->set_state("waiting");
    task->set_wait_reason("sync.Mutex.Lock");
    task->set_created_by("main.main at /srv/program/server.go:31");
    task->set_stack(i % 10'000 == 5'000 ? 1 : 0);
  }
  dump.set_task_count(dump.tasks_size());
  const v1::Dump full = ViewOf(dump, v1::DUMP_VIEW_FULL);
  EXPECT_LT(full.ByteSizeLong(), 4u << 20);
  EXPECT_EQ(full.task_count(), 100'000);
  EXPECT_GT(full.tasks_size(), 30'000);
  EXPECT_LT(full.tasks_size(), 100'000);
  int of_small_group = 0;
  uint64_t last_id = 0;
  for (const v1::Task& task : full.tasks()) {
    ASSERT_TRUE(task.has_stack());
    of_small_group += full.stacks(task.stack()).frames(0).function() == "main.serve";
    EXPECT_GE(task.id(), last_id);
    last_id = task.id();
  }
  EXPECT_EQ(of_small_group, 10);
  EXPECT_THAT(full.notes(0), HasSubstr(std::to_string(100'000 - full.tasks_size()) + " tasks"));
}

TEST(DumpView, ATaskKeepsAllItsStacks) {
  v1::Dump dump;
  for (const char* function : {"unused", "recv", "sleep", "lock"}) dump.add_stacks()->add_frames()->set_function(function);
  v1::Task* task = dump.add_tasks();
  task->set_stack(2);
  task->add_other_stacks(1);
  task->add_other_stacks(3);
  task->add_other_stacks(99);
  const v1::Dump full = ViewOf(dump, v1::DUMP_VIEW_FULL);
  ASSERT_EQ(full.stacks_size(), 3);
  const auto innermost = [&](int stack) { return full.stacks(stack).frames(0).function(); };
  EXPECT_EQ(innermost(full.tasks(0).stack()), "sleep");
  ASSERT_EQ(full.tasks(0).other_stacks_size(), 2);
  EXPECT_EQ(innermost(full.tasks(0).other_stacks(0)), "recv");
  EXPECT_EQ(innermost(full.tasks(0).other_stacks(1)), "lock");
}

TEST(DumpView, OfManyTasksWithStacksOfTheirOwnHasTasksWithTheirStacks) {
  v1::Dump dump;
  for (int i = 0; i < 20'000; ++i) {
    dump.add_stacks()->add_frames()->set_function(std::string(500, 'a') + std::to_string(i));
    dump.add_tasks()->set_stack(i);
  }
  const v1::Dump full = ViewOf(dump, v1::DUMP_VIEW_FULL);
  EXPECT_LE(full.ByteSizeLong(), kAnswerBudgetBytes);
  EXPECT_GT(full.tasks_size(), 5000);
  int without_stack = 0;
  for (int i = 0; i < full.tasks_size(); ++i) {
    if (!full.tasks(i).has_stack()) {
      ++without_stack;
      continue;
    }
    EXPECT_EQ(full.stacks(full.tasks(i).stack()).frames(0).function(), dump.stacks(i).frames(0).function());
  }
  EXPECT_LE(without_stack, 1);
  EXPECT_THAT(full.notes(), Contains(HasSubstr(std::to_string(20'000 - full.tasks_size()) + " tasks")));
}

TEST(DumpView, WhoseThreadsDoNotAllFitPointsToNoStackThatIsNotThere) {
  v1::Dump dump = DumpOf(100);
  dump.clear_groups();
  const v1::Dump full = ViewOf(dump, v1::DUMP_VIEW_FULL, 5000);
  ASSERT_GT(full.threads_size(), 0);
  ASSERT_LT(full.threads_size(), 100);
  for (const v1::Thread& thread : full.threads()) {
    EXPECT_TRUE(!thread.has_stack() || thread.stack() < full.stacks_size());
  }
}

TEST(DumpView, FullHasAllButLines) {
  v1::Dump dump = DumpOf(3);
  v1::Dump full = ViewOf(dump, v1::DUMP_VIEW_UNSPECIFIED);
  dump.clear_lines();
  EXPECT_EQ(full.SerializeAsString(), dump.SerializeAsString());
}

TEST(DumpView, SaysWhatHangsAndInFullWhichThreadsAreConcerned) {
  v1::Dump dump = DumpOf(1);
  dump.mutable_hang()->set_explanation("deadlock of 2 threads");
  v1::Finding* finding = dump.add_findings();
  finding->set_explanation("two wait for each other");
  finding->add_tids(1000);
  for (v1::DumpView view : {v1::DUMP_VIEW_BASIC, v1::DUMP_VIEW_TEXT}) {
    const v1::Dump basic = ViewOf(dump, view);
    EXPECT_EQ(basic.hang().explanation(), "deadlock of 2 threads");
    ASSERT_EQ(basic.findings_size(), 1);
    EXPECT_EQ(basic.findings(0).explanation(), "two wait for each other");
    EXPECT_EQ(basic.findings(0).tids_size(), 0);
  }
  EXPECT_EQ(ViewOf(dump, v1::DUMP_VIEW_FULL).findings(0).tids_size(), 1);
}

TEST(DumpView, SaysWhatDiedAndInFullWhatItsFingerprintIsMadeOf) {
  v1::Dump dump = DumpOf(1);
  dump.mutable_crash()->set_explanation("null dereference in load");
  dump.mutable_crash()->add_fingerprint_frames()->set_function("load");
  v1::Dump basic = ViewOf(dump, v1::DUMP_VIEW_BASIC);
  EXPECT_EQ(basic.crash().explanation(), "null dereference in load");
  EXPECT_EQ(basic.crash().fingerprint_frames_size(), 0);
  EXPECT_EQ(ViewOf(dump, v1::DUMP_VIEW_FULL).crash().fingerprint_frames_size(), 1);
}

TEST(DumpView, TextHasLinesAndNoGroups) {
  v1::Dump text = ViewOf(DumpOf(3), v1::DUMP_VIEW_TEXT);
  EXPECT_GT(text.lines_size(), 3);
  EXPECT_EQ(text.groups_size(), 0);
  EXPECT_EQ(text.omitted_group_count(), 0);
  for (const std::string& line : text.lines()) EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(DumpView, OfAHugeDumpFitsAndKeepsTheLargestGroups) {
  v1::Dump full = ViewOf(DumpOf(10'000), v1::DUMP_VIEW_FULL);
  EXPECT_LE(full.ByteSizeLong(), kAnswerBudgetBytes);
  EXPECT_GT(full.ByteSizeLong(), kAnswerBudgetBytes * 9 / 10);
  EXPECT_EQ(full.groups(0).thread_count(), 10'000);
  EXPECT_EQ(full.groups_size() + full.omitted_group_count(), 10'000);
  EXPECT_THAT(full.notes(), Contains(HasSubstr("stackctl export processes/7-100/dumps/")));
}

TEST(DumpView, OfALargeDumpHasThreadsWhoseStacksAreThere) {
  v1::Dump dump = DumpOf(100);
  size_t groups_and_threads_bytes = 100 * 1100 + 100 * 20;
  v1::Dump full = ViewOf(dump, v1::DUMP_VIEW_FULL, groups_and_threads_bytes + 20'000);
  EXPECT_EQ(full.groups_size(), 100);
  ASSERT_EQ(full.threads_size(), 100);
  EXPECT_GT(full.stacks_size(), 0);
  EXPECT_LT(full.stacks_size(), 100);
  int with_stack = 0;
  for (const v1::Thread& thread : full.threads()) {
    if (!thread.has_stack()) continue;
    ++with_stack;
    ASSERT_LT(thread.stack(), full.stacks_size());
    EXPECT_EQ(full.stacks(thread.stack()).frames(0).function(), dump.stacks(thread.tid() - 1000).frames(0).function());
  }
  EXPECT_EQ(with_stack, full.stacks_size());
  EXPECT_THAT(full.notes(), Contains(HasSubstr("the stacks of")));
}

TEST(DumpView, OfAHugeTextEndsWithTheCommandForTheRest) {
  v1::Dump text = ViewOf(DumpOf(10'000), v1::DUMP_VIEW_TEXT);
  EXPECT_LE(text.ByteSizeLong(), kAnswerBudgetBytes);
  EXPECT_GT(text.omitted_group_count(), 0);
  EXPECT_THAT(text.lines(text.lines_size() - 1), HasSubstr("ExportDump"));
}

TEST(DumpView, SurvivesAnIndexThatPointsNowhere) {
  v1::Dump dump = DumpOf(1);
  dump.mutable_threads(0)->set_stack(77);
  EXPECT_FALSE(ViewOf(dump, v1::DUMP_VIEW_FULL).threads(0).has_stack());
}

}  // namespace
}  // namespace stackd

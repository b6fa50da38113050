#include "daemon/serve/requests/frame_filter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stackd {
namespace {

// "f" is native, "py:f" of a runtime, "[f]" native and replaced; innermost first.
v1::Stack StackOf(const std::vector<std::string>& functions) {
  v1::Stack stack;
  for (const std::string& name : functions) {
    v1::Frame* frame = stack.add_frames();
    frame->set_replaced(name.starts_with('['));
    frame->set_origin(name.starts_with("py:") ? v1::Frame::RUNTIME : v1::Frame::CFI);
    frame->set_function(frame->replaced() ? name.substr(1, name.size() - 2) : name);
  }
  return stack;
}

// With "x3/2" behind a frame from which on two are repeated three times.
std::string Shown(const v1::Stack& stack) {
  std::string text;
  for (int i = 0; i < stack.frames_size(); ++i) {
    const v1::Frame& frame = stack.frames(i);
    if (stack.omitted_bytes() > 0 && i == stack.omitted_before()) text += " ...";
    text += " " + frame.function();
    if (frame.repeat_count() > 0) {
      text += "x" + std::to_string(frame.repeat_count()) + "/" + std::to_string(frame.repeat_length());
    }
    EXPECT_FALSE(frame.replaced());
  }
  return text.empty() ? text : text.substr(1);
}

std::shared_ptr<v1::Dump> DumpOf(const v1::Stack& stack) {
  auto dump = std::make_shared<v1::Dump>();
  *dump->add_stacks() = stack;
  v1::StackGroup* group = dump->add_groups();
  group->set_thread_count(1);
  *group->mutable_stack() = stack;
  return dump;
}

std::string Filtered(const v1::Stack& stack, v1::FrameFilter filter) {
  const auto shown = WithFrames(DumpOf(stack), filter);
  EXPECT_EQ(shown->groups(0).stack().SerializeAsString(), shown->stacks(0).SerializeAsString());
  return Shown(shown->stacks(0));
}

TEST(FrameFilterTest, ShowsInterpretersOnlyToThoseWhoAskForNativeFrames) {
  const v1::Stack stack = StackOf({"read", "py:load", "py:main", "[eval]", "main"});
  EXPECT_EQ(Filtered(stack, v1::ALL_FRAMES), "read py:load py:main main");
  EXPECT_EQ(Filtered(stack, v1::NATIVE_FRAMES), "read eval main");
  EXPECT_EQ(Filtered(stack, v1::MANAGED_FRAMES), "py:load py:main");
}

TEST(FrameFilterTest, StacksWithoutFramesOfRuntimesAreShownWhole) {
  auto dump = DumpOf(StackOf({"py:f", "[eval]"}));
  *dump->add_stacks() = StackOf({"read", "main"});
  EXPECT_EQ(Shown(WithFrames(dump, v1::MANAGED_FRAMES)->stacks(1)), "read main");
}

TEST(FrameFilterTest, ADumpWithoutRuntimesIsNotCopied) {
  const std::shared_ptr<const v1::Dump> dump = DumpOf(StackOf({"read", "main"}));
  EXPECT_EQ(WithFrames(dump, v1::MANAGED_FRAMES), dump);
}

TEST(FrameFilterTest, WhatNoFilterChangesIsNotCopied) {
  auto dump = DumpOf(StackOf({"read", "py:main", "[eval]"}));
  *dump->add_stacks() = StackOf({"go:f"});
  dump->add_groups()->set_task_count(100'000);
  dump->add_tasks()->set_id(17);
  dump->add_threads()->set_tid(1);
  const auto shown = WithFrames(dump, v1::ALL_FRAMES);
  ASSERT_NE(shown, dump);
  EXPECT_EQ(&shown->tasks(0), &dump->tasks(0));
  EXPECT_EQ(&shown->threads(0), &dump->threads(0));
  EXPECT_EQ(&shown->stacks(1), &dump->stacks(1));
  EXPECT_EQ(&shown->groups(1), &dump->groups(1));
  EXPECT_EQ(&shown->stacks(0).frames(1), &dump->stacks(0).frames(1));
}

TEST(FrameFilterTest, WhatIsShownOutlivesTheDump) {
  auto dump = DumpOf(StackOf({"py:main", "[eval]", "main"}));
  const auto shown = WithFrames(std::move(dump), v1::ALL_FRAMES);
  EXPECT_EQ(Shown(shown->groups(0).stack()), "py:main main");
}

// Whatever fields it has: each is set, and is there.
TEST(FrameFilterTest, NoFieldOfTheDumpIsForgotten) {
  auto dump = DumpOf(StackOf({"py:main", "[eval]"}));
  const auto* reflection = dump->GetReflection();
  for (int i = 0; i < dump->GetDescriptor()->field_count(); ++i) {
    const auto* field = dump->GetDescriptor()->field(i);
    using Field = google::protobuf::FieldDescriptor;
    const bool is_list = field->is_repeated();
    if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
      is_list ? reflection->AddMessage(dump.get(), field) : reflection->MutableMessage(dump.get(), field);
    } else if (field->cpp_type() == Field::CPPTYPE_STRING) {
      is_list ? reflection->AddString(dump.get(), field, "x") : reflection->SetString(dump.get(), field, "x");
    } else if (field->cpp_type() == Field::CPPTYPE_ENUM) {
      reflection->SetEnumValue(dump.get(), field, 1);
    } else if (field->cpp_type() == Field::CPPTYPE_INT64) {
      reflection->SetInt64(dump.get(), field, 1);
    } else if (field->cpp_type() == Field::CPPTYPE_INT32) {
      reflection->SetInt32(dump.get(), field, 1);
    } else {
      ASSERT_EQ(field->cpp_type(), Field::CPPTYPE_BOOL) << field->name();
      reflection->SetBool(dump.get(), field, true);
    }
  }
  const auto shown = WithFrames(dump, v1::ALL_FRAMES);
  ASSERT_NE(shown, dump);
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(*shown, &fields);
  EXPECT_EQ(fields.size(), static_cast<size_t>(dump->GetDescriptor()->field_count()));
  EXPECT_EQ(shown->process().SerializeAsString(), dump->process().SerializeAsString());
}

TEST(FrameFilterTest, WhatIsLeftOfARecursionIsCountedAsBefore) {
  v1::Stack stack = StackOf({"malloc", "[eval]", "py:f", "call", "main"});
  stack.mutable_frames(1)->set_repeat_count(500);
  stack.mutable_frames(1)->set_repeat_length(3);
  EXPECT_EQ(Filtered(stack, v1::ALL_FRAMES), "malloc py:fx500/2 call main");
  EXPECT_EQ(Filtered(stack, v1::NATIVE_FRAMES), "malloc evalx500/2 call main");
  EXPECT_EQ(Filtered(stack, v1::MANAGED_FRAMES), "py:fx500/1");
}

TEST(FrameFilterTest, AGapStaysWhereItWas) {
  v1::Stack stack = StackOf({"py:f", "[eval]", "call", "py:g", "[eval]", "main"});
  stack.set_omitted_bytes(100);
  stack.set_omitted_before(3);
  EXPECT_EQ(Filtered(stack, v1::ALL_FRAMES), "py:f call ... py:g main");
  EXPECT_EQ(Filtered(stack, v1::MANAGED_FRAMES), "py:f ... py:g");
}

TEST(FrameFilterTest, TasksHaveNoNativeFrames) {
  auto dump = DumpOf(StackOf({"py:f", "[eval]", "main"}));
  v1::StackGroup* tasks = dump->add_groups();
  tasks->set_task_count(10'000);
  *tasks->mutable_stack() = StackOf({"py:wait"});
  dump->add_tasks()->set_id(1);
  dump->set_task_count(1);
  EXPECT_EQ(WithFrames(dump, v1::MANAGED_FRAMES)->groups_size(), 2);
  const auto native = WithFrames(dump, v1::NATIVE_FRAMES);
  EXPECT_EQ(native->groups_size(), 1);
  EXPECT_EQ(native->task_count() + native->tasks_size(), 0);
  EXPECT_EQ(dump->groups_size(), 2) << "the stored one stays as it is";
}

}  // namespace
}  // namespace stackd

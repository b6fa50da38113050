#include "daemon/serve/frame_filter.h"

#include <algorithm>
#include <utility>

#include "daemon/analyze/runtime_frame.h"

namespace stackd {
namespace {

bool IsOfRuntimeOrReplaced(const v1::Frame& frame) { return frame.replaced() || IsOfRuntime(frame); }

bool IsShown(const v1::Frame& frame, v1::FrameFilter filter) {
  if (filter == v1::NATIVE_FRAMES) return !IsOfRuntime(frame);
  return filter == v1::MANAGED_FRAMES ? IsOfRuntime(frame) : !frame.replaced();
}

class StackFilter {
 public:
  StackFilter(const v1::Stack& stack, v1::FrameFilter filter) : stack_(stack), filter_(filter) {}

  v1::Stack Run() {
    shown_.set_end(stack_.end());
    shown_.set_omitted_bytes(stack_.omitted_bytes());
    bool gap_shown = stack_.omitted_bytes() == 0;
    for (int i = 0; i < stack_.frames_size();) {
      if (!gap_shown && i >= stack_.omitted_before()) {
        shown_.set_omitted_before(shown_.frames_size());
        gap_shown = true;
      }
      const v1::Frame& first = stack_.frames(i);
      const int length = std::clamp(first.repeat_count() > 0 ? first.repeat_length() : 1, 1, stack_.frames_size() - i);
      AddTurn(i, length);
      i += length;
    }
    return std::move(shown_);
  }

 private:
  // Of frames that are repeated, those that are left are repeated.
  void AddTurn(int begin, int length) {
    const int first_shown = shown_.frames_size();
    for (int i = begin; i < begin + length; ++i) {
      if (!IsShown(stack_.frames(i), filter_)) continue;
      v1::Frame* frame = shown_.add_frames();
      *frame = stack_.frames(i);
      frame->set_replaced(false);
    }
    const int shown = shown_.frames_size() - first_shown;
    if (stack_.frames(begin).repeat_count() == 0 || shown == 0) return;
    shown_.mutable_frames(first_shown)->set_repeat_count(stack_.frames(begin).repeat_count());
    shown_.mutable_frames(first_shown)->set_repeat_length(shown);
  }

  const v1::Stack& stack_;
  const v1::FrameFilter filter_;
  v1::Stack shown_;
};

void FilterStack(v1::FrameFilter filter, v1::Stack* stack) {
  if (std::ranges::none_of(stack->frames(), IsOfRuntimeOrReplaced)) return;
  const bool any_of_runtime = std::ranges::any_of(stack->frames(), IsOfRuntime);
  *stack = StackFilter(*stack, filter == v1::MANAGED_FRAMES && !any_of_runtime ? v1::ALL_FRAMES : filter).Run();
}

// Tasks that no thread runs have no native frames.
void DropTasks(v1::Dump* dump) {
  dump->clear_tasks();
  dump->clear_task_count();
  auto& groups = *dump->mutable_groups();
  groups.erase(
      std::remove_if(groups.begin(), groups.end(), [](const v1::StackGroup& group) { return group.thread_count() == 0; }),
      groups.end());
  for (v1::StackGroup& group : groups) {
    group.clear_task_count();
    group.clear_task_ids();
  }
}

}  // namespace

std::shared_ptr<const v1::Dump> WithFrames(std::shared_ptr<const v1::Dump> dump, v1::FrameFilter filter) {
  const bool any = std::ranges::any_of(
      dump->stacks(), [](const v1::Stack& stack) { return std::ranges::any_of(stack.frames(), IsOfRuntimeOrReplaced); });
  if (!any) return dump;
  auto shown = std::make_shared<v1::Dump>(*dump);
  for (v1::Stack& stack : *shown->mutable_stacks()) FilterStack(filter, &stack);
  for (v1::StackGroup& group : *shown->mutable_groups()) FilterStack(filter, group.mutable_stack());
  if (filter == v1::NATIVE_FRAMES) DropTasks(shown.get());
  return shown;
}

}  // namespace stackd

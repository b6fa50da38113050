#include "daemon/serve/requests/frame_filter.h"

#include <google/protobuf/arena.h>
#include <google/protobuf/util/field_mask_util.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "daemon/analyze/names/runtime_frame.h"

namespace stackd {
namespace {

bool IsOfRuntimeOrReplaced(const v1::Frame& frame) { return frame.replaced() || IsOfRuntime(frame); }

bool IsShown(const v1::Frame& frame, v1::FrameFilter filter) {
  if (filter == v1::NATIVE_FRAMES) return !IsOfRuntime(frame);
  return filter == v1::MANAGED_FRAMES ? IsOfRuntime(frame) : !frame.replaced();
}

// A list on an arena does not own what it is given so. Neither changes it.
template <typename Message>
void Share(const Message& message, google::protobuf::RepeatedPtrField<Message>* list) {
  list->UnsafeArenaAddAllocated(const_cast<Message*>(&message));
}

template <typename Message>
void ShareAll(const google::protobuf::RepeatedPtrField<Message>& messages,
              google::protobuf::RepeatedPtrField<Message>* list) {
  list->Reserve(messages.size());
  for (const Message& message : messages) Share(message, list);
}

class StackFilter {
 public:
  // `shown` is empty, on an arena that `stack` outlives.
  StackFilter(const v1::Stack& stack, v1::FrameFilter filter, v1::Stack* shown)
      : stack_(stack), filter_(filter), shown_(*shown) {}

  void Run() {
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
  }

 private:
  // Adds the shown frames of one turn of a recursion: they are repeated as the whole turn is.
  void AddTurn(int begin, int length) {
    const bool is_repeated = stack_.frames(begin).repeat_count() > 0;
    const int first_shown = shown_.frames_size();
    for (int i = begin; i < begin + length; ++i) {
      const v1::Frame& frame = stack_.frames(i);
      if (!IsShown(frame, filter_)) continue;
      if (!is_repeated && !frame.replaced()) {
        Share(frame, shown_.mutable_frames());
        continue;
      }
      v1::Frame* copy = shown_.add_frames();
      *copy = frame;
      copy->set_replaced(false);
    }
    const int shown = shown_.frames_size() - first_shown;
    if (!is_repeated || shown == 0) return;
    shown_.mutable_frames(first_shown)->set_repeat_count(stack_.frames(begin).repeat_count());
    shown_.mutable_frames(first_shown)->set_repeat_length(shown);
  }

  const v1::Stack& stack_;
  const v1::FrameFilter filter_;
  v1::Stack& shown_;
};

bool Changes(const v1::Stack& stack, v1::FrameFilter filter) {
  if (filter == v1::NATIVE_FRAMES || filter == v1::MANAGED_FRAMES) {
    return std::ranges::any_of(stack.frames(), IsOfRuntimeOrReplaced);
  }
  return std::ranges::any_of(stack.frames(), [](const v1::Frame& frame) { return frame.replaced(); });
}

// By exclusion, so that a field which the API gets later is not forgotten here.
google::protobuf::FieldMask CopiedFields() {
  constexpr int kShared[] = {v1::Dump::kGroupsFieldNumber,  v1::Dump::kThreadsFieldNumber,  v1::Dump::kStacksFieldNumber,
                             v1::Dump::kModulesFieldNumber, v1::Dump::kFindingsFieldNumber, v1::Dump::kTasksFieldNumber,
                             v1::Dump::kReportsFieldNumber};
  google::protobuf::FieldMask mask;
  const auto* descriptor = v1::Dump::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    if (std::ranges::find(kShared, descriptor->field(i)->number()) != std::end(kShared)) continue;
    mask.add_paths(descriptor->field(i)->name());
  }
  return mask;
}

// A dump as it is shown. What the filter leaves as it is remains the dump's own. To copy a hundred thousand tasks takes
// longer than all the rest of the answer.
class ShownDump {
 public:
  ShownDump(std::shared_ptr<const v1::Dump> dump, v1::FrameFilter filter)
      : dump_(std::move(dump)), filter_(filter), shown_(*google::protobuf::Arena::CreateMessage<v1::Dump>(&arena_)) {
    static const auto* const kCopied = new google::protobuf::FieldMask(CopiedFields());
    google::protobuf::util::FieldMaskUtil::MergeMessageTo(*dump_, *kCopied, {}, &shown_);
    ShareAll(dump_->threads(), shown_.mutable_threads());
    ShareAll(dump_->modules(), shown_.mutable_modules());
    ShareAll(dump_->findings(), shown_.mutable_findings());
    ShareAll(dump_->reports(), shown_.mutable_reports());
    for (const v1::Stack& stack : dump_->stacks()) Share(Filtered(stack), shown_.mutable_stacks());
    AddTasks();
    for (const v1::StackGroup& group : dump_->groups()) AddGroup(group);
  }

  const v1::Dump& shown() const { return shown_; }

 private:
  // `stack` itself if nothing of it changes.
  const v1::Stack& Filtered(const v1::Stack& stack) {
    if (!Changes(stack, filter_)) return stack;
    const v1::Stack*& filtered = filtered_[&stack];
    if (filtered == nullptr) {
      auto* made = google::protobuf::Arena::CreateMessage<v1::Stack>(&arena_);
      const bool any_of_runtime = std::ranges::any_of(stack.frames(), IsOfRuntime);
      const bool shows_all = filter_ == v1::MANAGED_FRAMES && !any_of_runtime;
      StackFilter(stack, shows_all ? v1::ALL_FRAMES : filter_, made).Run();
      filtered = made;
    }
    return *filtered;
  }

  // Tasks that no thread runs have no native frames.
  bool HasTasks() const { return filter_ != v1::NATIVE_FRAMES; }

  void AddTasks() {
    if (HasTasks()) {
      ShareAll(dump_->tasks(), shown_.mutable_tasks());
    } else {
      shown_.clear_task_count();
    }
  }

  void AddGroup(const v1::StackGroup& group) {
    if (!HasTasks() && group.thread_count() == 0) return;
    const v1::Stack& stack = Filtered(group.stack());
    const bool loses_tasks = !HasTasks() && group.task_count() > 0;
    if (&stack == &group.stack() && !loses_tasks) return Share(group, shown_.mutable_groups());
    v1::StackGroup* copy = shown_.add_groups();
    *copy = group;
    copy->unsafe_arena_set_allocated_stack(const_cast<v1::Stack*>(&stack));
    if (!loses_tasks) return;
    copy->clear_task_count();
    copy->clear_task_ids();
  }

  const std::shared_ptr<const v1::Dump> dump_;
  const v1::FrameFilter filter_;
  google::protobuf::Arena arena_;
  v1::Dump& shown_;
  std::unordered_map<const v1::Stack*, const v1::Stack*> filtered_;  // a group has one of the dump's
};

}  // namespace

std::shared_ptr<const v1::Dump> WithFrames(std::shared_ptr<const v1::Dump> dump, v1::FrameFilter filter) {
  if (std::ranges::none_of(dump->stacks(), [&](const v1::Stack& stack) { return Changes(stack, filter); })) return dump;
  const auto shown = std::make_shared<const ShownDump>(std::move(dump), filter);
  return {shown, &shown->shown()};
}

}  // namespace stackd

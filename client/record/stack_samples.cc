#include "client/record/stack_samples.h"

#include <algorithm>
#include <tuple>

#include "daemon/export/wording.h"

namespace stackd {
namespace {

v1::Language LanguageOf(v1::Task::Kind kind) {
  switch (kind) {
    case v1::Task::GOROUTINE:
      return v1::GO;
    case v1::Task::VIRTUAL_THREAD:
      return v1::JAVA;
    case v1::Task::ASYNCIO_TASK:
      return v1::PYTHON;
    case v1::Task::TOKIO_TASK:
      return v1::RUST;
    default:
      return v1::LANGUAGE_UNSPECIFIED;
  }
}

// A text that no other two make: each part with its length.
std::string KeyOf(const SampledStack& what, const std::string& stack) {
  std::string key = what.is_task ? "task" : what.is_idle ? "idle" : "thread";
  for (const std::string& part : {what.who, what.wait, what.state, stack}) {
    key += " " + std::to_string(part.size()) + " " + part;
  }
  return key;
}

std::set<int32_t> IdleThreads(const v1::Dump& sample) {
  std::set<int32_t> tids;
  for (const v1::Finding& finding : sample.findings()) {
    if (finding.kind() == v1::Finding::IDLE) tids.insert(finding.tids().begin(), finding.tids().end());
  }
  return tids;
}

}  // namespace

void StackSamples::Add(const v1::Dump& sample) {
  if (sample_count_++ == 0) process_ = sample.process();
  AddModules(sample);
  const std::set<int32_t> idle = IdleThreads(sample);
  Found found;
  for (const v1::Thread& thread : sample.threads()) {
    if (thread.is_agent() || thread.status() == v1::Thread::EXITED) continue;
    AddThread(sample, thread, idle.contains(thread.tid()), &found);
  }
  for (const v1::Task& task : sample.tasks()) AddTask(sample, task, &found);
  // Threads of a sample that was too large for an answer.
  const int64_t cut = std::max<int64_t>(0, sample.thread_counts().listed() - sample.threads_size());
  total_ += cut;
  left_out_ += cut;
  for (const auto& [stack, count] : found) stack->most_at_once = std::max(stack->most_at_once, count);
}

void StackSamples::AddThread(const v1::Dump& sample, const v1::Thread& thread, bool is_idle, Found* found) {
  SampledStack what{.who = thread.name(), .state = thread.has_stack() ? "" : thread.state(), .is_idle = is_idle};
  if (thread.has_wait()) {
    what.wait = thread.wait().explanation();
    what.wait_kind = v1::Wait::Kind_Name(thread.wait().kind());
  }
  AddAt(sample, thread.has_stack() ? thread.stack() : -1, std::move(what), found);
}

void StackSamples::AddTask(const v1::Dump& sample, const v1::Task& task, Found* found) {
  SampledStack what{.who = std::string(TaskNoun(LanguageOf(task.kind()))),
                    .wait = task.wait_reason(),
                    .wait_kind = task.wait_reason(),
                    .state = task.has_stack() ? "" : task.state(),
                    .is_task = true};
  AddAt(sample, task.has_stack() ? task.stack() : -1, std::move(what), found);
}

void StackSamples::AddAt(const v1::Dump& sample, int stack, SampledStack what, Found* found) {
  ++total_;
  const bool has_stack = stack >= 0 && stack < sample.stacks_size();
  const std::string key = KeyOf(what, has_stack ? sample.stacks(stack).SerializeAsString() : "");
  auto known = stacks_.find(key);
  if (known == stacks_.end()) {
    if (stacks_.size() >= kMaxStacks) {
      ++left_out_;
      return;
    }
    if (has_stack) what.stack = sample.stacks(stack);
    known = stacks_.emplace(key, std::move(what)).first;
  }
  ++known->second.count;
  ++(*found)[&known->second];
}

void StackSamples::AddModules(const v1::Dump& sample) {
  for (const v1::Module& module : sample.modules()) {
    if (known_modules_.emplace(module.path(), module.address()).second) modules_.push_back(module);
  }
}

std::vector<const SampledStack*> StackSamples::MostFirst() const {
  std::vector<const SampledStack*> most_first;
  most_first.reserve(stacks_.size());
  for (const auto& [key, stack] : stacks_) most_first.push_back(&stack);
  const auto order = [](const SampledStack* stack) { return std::tuple(-stack->count, stack->who, stack->wait); };
  std::ranges::sort(most_first, {}, order);
  return most_first;
}

}  // namespace stackd

#include "daemon/pipeline/pipeline_counters.h"

#include <algorithm>

namespace stackd {

void PipelineCounters::Count(const Capture& capture, const v1::Dump& dump, const std::vector<NamedStack>& stacks) {
  const auto trigger = static_cast<size_t>(capture.trigger);
  const bool is_partial = dump.state() == v1::Dump::PARTIAL;
  ++dumps_by_trigger[trigger];
  if (is_partial) ++dumps_partial;
  ++measures.captures[trigger][is_partial ? PipelineMeasures::kPartial : PipelineMeasures::kComplete];
  measures.capture.Observe(capture.duration_ns);
  for (const ThreadCapture& thread : capture.threads) stacks_unwound += thread.has_stack ? 1 : 0;
  for (const NamedStack& stack : stacks) {
    if (stack.native.end != StackEnd::kRoot) ++stacks_incomplete;
    frames += static_cast<int64_t>(stack.native.frames.size());
    frames_unnamed += std::count_if(stack.locations.begin(), stack.locations.end(), [](const auto& location) {
      return location->frames.empty() || location->frames.back().function.empty();
    });
  }
}

void PipelineCounters::CountFailed(Trigger trigger) {
  ++dumps_failed;
  ++measures.captures[static_cast<size_t>(trigger)][PipelineMeasures::kFailed];
}

std::map<std::string, int64_t> PipelineCounters::ByName() const {
  const auto of = [this](Trigger trigger) { return dumps_by_trigger[static_cast<size_t>(trigger)].load(); };
  return {{"dumps_request", of(Trigger::kRequest)},
          {"dumps_hang", of(Trigger::kHang)},
          {"dumps_crash", of(Trigger::kCrash)},
          {"dumps_self", of(Trigger::kSelf)},
          {"dumps_failed", dumps_failed},
          {"dumps_partial", dumps_partial},
          {"dumps_unstored", dumps_unstored},
          {"dumps_running", dumps_running},
          {"dumps_named_anew", dumps_resymbolized},
          {"samples", samples},
          {"samples_failed", samples_failed},
          {"crashes_known", crashes_known},
          {"crashes_reread", crashes_reread},
          {"captures_set_aside", captures_set_aside},
          {"stacks_unwound", stacks_unwound},
          {"stacks_incomplete", stacks_incomplete},
          {"frames", frames},
          {"frames_unnamed", frames_unnamed}};
}

}  // namespace stackd

#include "daemon/detect/watch/watched_process.h"

#include <utility>

namespace stackd {

void WatchedProcess::SetDescription(ProcessDescription description) {
  const bool is_new = description_.id.empty();
  if (!is_new && description_.display_name == description.display_name) return;
  description_ = std::move(description);
  for (size_t i = 0; i < kRuleTriggers; ++i) {
    rule_for_[i] = FindRule(*rules_, static_cast<RuleTrigger>(i), description_);
  }
}

bool WatchedProcess::IsStopped(int32_t tid) const {
  const char state = probe.StateOf(id(), tid);
  return state == 'T' || state == 't';
}

SharedSuspicion WatchedProcess::Suspect(HangCapture hang, std::string subject, RuleTrigger trigger, int64_t now_ns,
                                        bool is_inferred) const {
  auto suspicion = std::make_shared<Suspicion>();
  suspicion->process_id = description_.id;
  suspicion->process_name = description_.display_name;
  suspicion->subject = std::move(subject);
  suspicion->hang = std::move(hang);
  suspicion->rule = rule_for_[static_cast<size_t>(trigger)];
  suspicion->hang.rule = suspicion->rule->name;
  suspicion->seen_ns = now_ns;
  suspicion->is_inferred = is_inferred;
  report_(suspicion);
  return suspicion;
}

}  // namespace stackd

#include "daemon/detect/rules/rules.h"

#include <fnmatch.h>

#include <algorithm>

namespace stackd {
namespace {

bool Matches(const std::string& glob, const std::string& text) {
  return glob.empty() || fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

}  // namespace

bool Rule::Fits(const ProcessDescription& process_description) const {
  return Matches(process, process_description.display_name) && Matches(executable, process_description.executable);
}

std::shared_ptr<const Rule> FindRule(const Rules& rules, RuleTrigger trigger, const ProcessDescription& process) {
  const auto fits = [&](const auto& rule) { return rule->trigger == trigger && rule->Fits(process); };
  const auto found = std::ranges::find_if(rules, fits);
  return found == rules.end() ? nullptr : *found;
}

Quiet QuietOf(RuleTrigger trigger) {
  const bool is_of_sleepers = trigger == RuleTrigger::kDeadlock || trigger == RuleTrigger::kStall;
  return is_of_sleepers ? Quiet::kOnly : Quiet::kPrefer;
}

Rules BuiltInRules() {
  Rules rules;
  const auto add = [&](const char* name, RuleTrigger trigger) {
    Rule rule;
    rule.name = name;
    rule.trigger = trigger;
    rule.quiet = QuietOf(trigger);
    rules.push_back(std::make_shared<const Rule>(std::move(rule)));
  };
  add("heartbeat", RuleTrigger::kHeartbeat);
  add("deadlock", RuleTrigger::kDeadlock);
  add("spin", RuleTrigger::kSpin);
  add("no_progress", RuleTrigger::kStall);
  return rules;
}

}  // namespace stackd

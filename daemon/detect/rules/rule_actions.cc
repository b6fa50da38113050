#include "daemon/detect/rules/rule_actions.h"

#include <utility>

namespace stackd {

Result<std::unique_ptr<RuleActions>> RuleActions::Start(Rules rules, const std::string& address) {
  std::unique_ptr<RuleActions> actions(new RuleActions(std::move(rules)));
  for (const auto& rule : actions->rules_) {
    if (rule->run.empty() || actions->programs_.contains(rule->run)) continue;
    auto program = OnDump::Start({.program = rule->run, .address = address, .asked_by = "rule \"" + rule->name + "\""});
    if (!program) return std::unexpected(program.error());
    actions->programs_.emplace(rule->run, std::move(*program));
  }
  return actions;
}

void RuleActions::Run(const std::string& program, const std::string& dump_name, const std::string& trigger) {
  programs_.at(program)->Add(dump_name, trigger);
}

void RuleActions::OnCrash(const ProcessDescription& process, const std::string& dump_name, int64_t now_ns) {
  const auto rule = FindRule(rules_, RuleTrigger::kCrash, process);
  if (rule == nullptr) return;
  {
    std::lock_guard lock(mutex_);
    std::deque<int64_t>& earlier_ns = crashes_ns_[rule.get()];
    while (!earlier_ns.empty() && now_ns - earlier_ns.front() >= rule->window_ns) earlier_ns.pop_front();
    if (earlier_ns.size() >= static_cast<size_t>(rule->count)) return;
    earlier_ns.push_back(now_ns);
  }
  Run(rule->run, dump_name, "CRASH");
}

}  // namespace stackd

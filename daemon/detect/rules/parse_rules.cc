#include <map>
#include <optional>
#include <set>

#include "daemon/base/printable.h"
#include "daemon/config/yaml_reader.h"
#include "daemon/detect/rules/rules.h"

namespace stackd {
namespace {

// A sender of SIGTERM is likely to send SIGKILL 30 s later.
constexpr int64_t kShutdownNs = 20 * kNsPerSecond;

const std::map<std::string, RuleTrigger> kTriggers = {
    {"heartbeat", RuleTrigger::kHeartbeat}, {"deadlock", RuleTrigger::kDeadlock},        {"spin", RuleTrigger::kSpin},
    {"no_progress", RuleTrigger::kStall},   {"not_gone", RuleTrigger::kShutdownTimeout}, {"crash", RuleTrigger::kCrash}};

void ReadFilters(YamlReader* reader, const YAML::Node& node, Rule* rule) {
  if (!node.IsSequence()) return reader->Fault(node.Mark(), "filters must be a list, like \"- process: web*\"");
  const auto glob_into = [&](std::string* glob, const std::string& what) {
    return [=](const YAML::Node& value) {
      if (!glob->empty()) reader->Fault(value.Mark(), "there is a filter " + InQuotes(what) + " already");
      *glob = reader->Text(value, what);
    };
  };
  for (const YAML::Node& filter : node) {
    reader->ReadMap(
        filter, "a filter",
        {{"process", glob_into(&rule->process, "process")}, {"executable", glob_into(&rule->executable, "executable")}});
  }
}

void ReadTrigger(YamlReader* reader, const YAML::Node& node, Rule* rule) {
  bool has_type = false, is_known = false;
  YAML::Node after;
  const auto read_type = [&](const YAML::Node& value) {
    has_type = true;
    const std::string type = reader->Text(value, "type");
    const auto known = kTriggers.find(type);
    is_known = known != kTriggers.end();
    if (is_known) {
      rule->trigger = known->second;
    } else if (!type.empty()) {
      reader->UnknownName(value.Mark(), "trigger", type, "in type", YamlReader::Names(kTriggers));
    }
  };
  reader->ReadMap(node, "the trigger", {{"type", read_type}, {"after", [&](const YAML::Node& value) {
                                                                after.reset(value);
                                                                rule->after_ns = reader->DurationNs(value, "after");
                                                              }}});
  if (!node.IsMap()) return;
  if (!has_type) return reader->Fault(node.Mark(), "the trigger needs a type: " + JoinNames(YamlReader::Names(kTriggers)));
  if (rule->trigger == RuleTrigger::kShutdownTimeout && after.IsNull()) rule->after_ns = kShutdownNs;
  const bool has_time = rule->trigger == RuleTrigger::kSpin || rule->trigger == RuleTrigger::kStall ||
                        rule->trigger == RuleTrigger::kShutdownTimeout;
  if (!after.IsNull() && is_known && !has_time) {
    const char* reason =
        rule->trigger == RuleTrigger::kHeartbeat ? "the program gives each heartbeat its limit" : "it is noticed at once";
    reader->Fault(after.Mark(), std::string("this trigger takes no \"after\": ") + reason);
  }
}

const std::map<std::string, Quiet> kQuiet = {{"prefer", Quiet::kPrefer}, {"only", Quiet::kOnly}, {"never", Quiet::kNever}};

std::optional<Quiet> ReadQuiet(YamlReader* reader, const YAML::Node& node) {
  const std::string name = reader->Text(node, "quiet");
  const auto known = kQuiet.find(name);
  if (known != kQuiet.end()) return known->second;
  if (!name.empty()) reader->UnknownName(node.Mark(), "value", name, "in quiet", YamlReader::Names(kQuiet));
  return std::nullopt;
}

void ReadActions(YamlReader* reader, const YAML::Node& node, bool* dumps, Rule* rule) {
  if (!node.IsSequence()) return reader->Fault(node.Mark(), "actions must be a list, like \"- dump\"");
  for (const YAML::Node& action : node) {
    if (action.IsScalar() && action.Scalar() == "dump") {
      *dumps = true;
    } else if (action.IsScalar()) {
      const std::string hint = action.Scalar() == "run" ? "; \"run\" needs a program: \"- run: /path/of/program\"" : "";
      reader->UnknownName(action.Mark(), "action", action.Scalar(), "in actions" + hint, {"dump", "run"});
    } else {
      reader->ReadMap(action, "an action", {{"run", [&](const YAML::Node& value) {
                                               if (!rule->run.empty())
                                                 reader->Fault(value.Mark(), "a rule runs one program");
                                               rule->run = reader->Text(value, "run");
                                               if (!rule->run.empty() && rule->run[0] != '/') {
                                                 reader->Fault(value.Mark(),
                                                               "run takes the whole path of a program, from \"/\" on; "
                                                               "there is no shell and there are no arguments");
                                               }
                                             }}});
    }
  }
}

void ReadLimits(YamlReader* reader, const YAML::Node& node, Rule* rule) {
  reader->ReadMap(
      node, "limits",
      {{"count", [&](const YAML::Node& value) { rule->count = reader->Count(value, "count"); }},
       {"window", [&](const YAML::Node& value) { rule->window_ns = reader->DurationNs(value, "window"); }},
       {"cooldown", [&](const YAML::Node& value) { rule->cooldown_ns = reader->DurationNs(value, "cooldown"); }}});
}

Rule ReadRule(YamlReader* reader, const YAML::Node& node, std::set<std::string>* names) {
  Rule rule;
  bool has_trigger = false, has_actions = false, dumps = false;
  std::optional<Quiet> quiet;
  const auto read_name = [&](const YAML::Node& value) {
    rule.name = PrintableText(reader->Text(value, "name"));
    if (!rule.name.empty() && !names->insert(rule.name).second) {
      reader->Fault(value.Mark(), "there is a rule " + InQuotes(rule.name) + " already");
    }
  };
  reader->ReadMap(node, "a rule",
                  {{"name", read_name},
                   {"filters", [&](const YAML::Node& value) { ReadFilters(reader, value, &rule); }},
                   {"trigger",
                    [&](const YAML::Node& value) {
                      has_trigger = true;
                      ReadTrigger(reader, value, &rule);
                    }},
                   {"actions",
                    [&](const YAML::Node& value) {
                      has_actions = true;
                      ReadActions(reader, value, &dumps, &rule);
                    }},
                   {"quiet", [&](const YAML::Node& value) { quiet = ReadQuiet(reader, value); }},
                   {"limits", [&](const YAML::Node& value) { ReadLimits(reader, value, &rule); }}});
  rule.quiet = quiet.value_or(QuietOf(rule.trigger));
  if (!node.IsMap()) return rule;
  if (!node["name"]) reader->Fault(node.Mark(), "the rule needs a name");
  if (!has_trigger) reader->Fault(node.Mark(), "the rule needs a trigger");
  if (!has_actions) {
    reader->Fault(node.Mark(), "the rule needs actions: dump, run, or both");
  } else if (rule.trigger == RuleTrigger::kCrash) {
    if (rule.run.empty()) reader->Fault(node.Mark(), "a crash is dumped without a rule: give the action run");
  } else if (!dumps) {
    reader->Fault(node.Mark(), "the rule needs the action dump: a program is told the name of a dump");
  }
  return rule;
}

}  // namespace

std::expected<Rules, std::vector<std::string>> ParseRules(std::string_view text, const std::string& file) {
  YamlReader reader(file);
  Rules rules;
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    std::set<std::string> names;
    if (root.IsNull()) return std::unexpected(std::vector<std::string>{file + ":1:1: the file has no rules"});
    reader.ReadMap(root, "the file", {{"rules", [&](const YAML::Node& list) {
                                         if (!list.IsSequence() || list.size() == 0) {
                                           return reader.Fault(list.Mark(), "rules must be a list of one rule or more");
                                         }
                                         for (const YAML::Node& node : list) {
                                           rules.push_back(std::make_shared<const Rule>(ReadRule(&reader, node, &names)));
                                         }
                                       }}});
    if (root.IsMap() && !root["rules"]) reader.Fault(root.Mark(), "the file has no rules: it starts with \"rules:\"");
  } catch (const YAML::Exception& error) {
    reader.Fault(error.mark, "this is no YAML: " + error.msg);
  }
  std::vector<std::string> faults = reader.TakeFaults();
  if (!faults.empty()) return std::unexpected(std::move(faults));
  return rules;
}

std::expected<Rules, std::vector<std::string>> ReadRules(const std::string& file) {
  Result<std::string> text = ReadConfigFile(file);
  if (!text) return std::unexpected(std::vector<std::string>{text.error().message});
  return ParseRules(*text, file);
}

std::optional<int> CheckRulesIfAsked(int argc, const char* const* argv) {
  return CheckFileIfAsked(argc, argv, {.command = "check-rules", .option = "--rules"}, [](const std::string& file) {
    const auto rules = ReadRules(file);
    if (!rules) return std::expected<std::string, std::vector<std::string>>(std::unexpect, rules.error());
    return std::expected<std::string, std::vector<std::string>>(std::to_string(rules->size()) +
                                                                (rules->size() == 1 ? " rule" : " rules"));
  });
}

}  // namespace stackd

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "daemon/base/near_name.h"
#include "daemon/base/printable.h"
#include "daemon/config/units.h"
#include "daemon/detect/rules.h"

namespace stackd {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr int64_t kMaxCount = 1'000'000;
// Who sends SIGTERM is likely to send SIGKILL 30 s later.
constexpr int64_t kNotGoneNs = 20 * kNsPerSecond;

const std::map<std::string, RuleTrigger> kTriggers = {
    {"heartbeat", RuleTrigger::kHeartbeat},    {"deadlock", RuleTrigger::kDeadlock}, {"spin", RuleTrigger::kSpin},
    {"no_progress", RuleTrigger::kNoProgress}, {"not_gone", RuleTrigger::kNotGone},  {"crash", RuleTrigger::kCrash}};

std::string Quoted(std::string_view text) { return "\"" + PrintableText(text) + "\""; }

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Reads nodes, and writes down what is wrong and where.
class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  void Fault(const YAML::Mark& mark, const std::string& sentence) {
    faults_.push_back(file_ + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1) + ": " +
                      sentence);
  }

  // Calls the reader of each key; a key that has none, or stands there twice, is a fault.
  using Keys = std::map<std::string, std::function<void(const YAML::Node&)>>;
  void ReadMap(const YAML::Node& node, const std::string& what, const Keys& keys) {
    if (!node.IsMap()) return Fault(node.Mark(), what + " must be a list of keys and values");
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      const auto reader = keys.find(key);
      if (reader == keys.end()) {
        UnknownName(entry.first.Mark(), "key", key, "in " + what, Names(keys));
      } else if (!seen.insert(key).second) {
        Fault(entry.first.Mark(), "the key " + Quoted(key) + " stands twice in " + what);
      } else {
        reader->second(entry.second);
      }
    }
  }

  void UnknownName(const YAML::Mark& mark, const std::string& kind, const std::string& typed, const std::string& where,
                   const std::vector<std::string>& names) {
    const std::vector<std::string> near = NearNames(typed, names);
    const std::string hint = near.empty() ? "possible: " + Joined(names) : "did you mean " + Quoted(near[0]) + "?";
    Fault(mark, "unknown " + kind + " " + Quoted(typed) + " " + where + "; " + hint);
  }

  std::string Text(const YAML::Node& node, const std::string& what) {
    if (node.IsScalar() && !node.Scalar().empty()) return node.Scalar();
    Fault(node.Mark(), what + " must be a text that is not empty");
    return {};
  }

  int64_t DurationNs(const YAML::Node& node, const std::string& what) {
    const Result<int64_t> ms = node.IsScalar() ? ParseDurationMs(node.Scalar()) : 0;
    if (!ms) {
      Fault(node.Mark(), what + ": " + Quoted(node.Scalar()) + " is no duration; write it like 5s, 10min or 2h");
    } else if (*ms <= 0 || *ms > INT64_MAX / kNsPerMs) {
      Fault(node.Mark(), what + " must be a duration above 0, like 5s, 10min or 2h");
    } else {
      return *ms * kNsPerMs;
    }
    return kNsPerSecond;
  }

  int64_t Count(const YAML::Node& node, const std::string& what) {
    int64_t count = 0;
    if (node.IsScalar() && YAML::convert<int64_t>::decode(node, count) && count >= 1 && count <= kMaxCount) return count;
    Fault(node.Mark(), what + " must be a number from 1 to " + std::to_string(kMaxCount));
    return 1;
  }

  std::vector<std::string> TakeFaults() { return std::move(faults_); }

  template <typename Map>
  static std::vector<std::string> Names(const Map& map) {
    std::vector<std::string> names;
    for (const auto& [name, value] : map) names.push_back(name);
    return names;
  }

 private:
  const std::string file_;
  std::vector<std::string> faults_;
};

void ReadFilters(Reader* reader, const YAML::Node& node, Rule* rule) {
  if (!node.IsSequence()) return reader->Fault(node.Mark(), "filters must be a list, like \"- process: web*\"");
  const auto glob_into = [&](std::string* glob, const std::string& what) {
    return [=](const YAML::Node& value) {
      if (!glob->empty()) reader->Fault(value.Mark(), "there is a filter " + Quoted(what) + " already");
      *glob = reader->Text(value, what);
    };
  };
  for (const YAML::Node& filter : node) {
    reader->ReadMap(
        filter, "a filter",
        {{"process", glob_into(&rule->process, "process")}, {"executable", glob_into(&rule->executable, "executable")}});
  }
}

void ReadTrigger(Reader* reader, const YAML::Node& node, Rule* rule) {
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
      reader->UnknownName(value.Mark(), "trigger", type, "in type", Reader::Names(kTriggers));
    }
  };
  reader->ReadMap(node, "the trigger", {{"type", read_type}, {"after", [&](const YAML::Node& value) {
                                                                after.reset(value);
                                                                rule->after_ns = reader->DurationNs(value, "after");
                                                              }}});
  if (!node.IsMap()) return;
  if (!has_type) return reader->Fault(node.Mark(), "the trigger needs a type: " + Joined(Reader::Names(kTriggers)));
  if (rule->trigger == RuleTrigger::kNotGone && after.IsNull()) rule->after_ns = kNotGoneNs;
  const bool has_time = rule->trigger == RuleTrigger::kSpin || rule->trigger == RuleTrigger::kNoProgress ||
                        rule->trigger == RuleTrigger::kNotGone;
  if (!after.IsNull() && is_known && !has_time) {
    const char* reason =
        rule->trigger == RuleTrigger::kHeartbeat ? "the program gives each heartbeat its limit" : "it is noticed at once";
    reader->Fault(after.Mark(), std::string("this trigger takes no \"after\": ") + reason);
  }
}

void ReadActions(Reader* reader, const YAML::Node& node, bool* dumps, Rule* rule) {
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

void ReadLimits(Reader* reader, const YAML::Node& node, Rule* rule) {
  reader->ReadMap(
      node, "limits",
      {{"count", [&](const YAML::Node& value) { rule->count = reader->Count(value, "count"); }},
       {"window", [&](const YAML::Node& value) { rule->window_ns = reader->DurationNs(value, "window"); }},
       {"cooldown", [&](const YAML::Node& value) { rule->cooldown_ns = reader->DurationNs(value, "cooldown"); }}});
}

Rule ReadRule(Reader* reader, const YAML::Node& node, std::set<std::string>* names) {
  Rule rule;
  bool has_trigger = false, has_actions = false, dumps = false;
  const auto read_name = [&](const YAML::Node& value) {
    rule.name = PrintableText(reader->Text(value, "name"));
    if (!rule.name.empty() && !names->insert(rule.name).second) {
      reader->Fault(value.Mark(), "there is a rule " + Quoted(rule.name) + " already");
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
                   {"limits", [&](const YAML::Node& value) { ReadLimits(reader, value, &rule); }}});
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
  Reader reader(file);
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
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (stream) stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!stream.is_open() || stream.bad()) return std::unexpected(std::vector<std::string>{file + ": cannot be read"});
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kMaxFileBytes) return std::unexpected(std::vector<std::string>{file + ": has more than 1 MiB"});
  return ParseRules(text, file);
}

std::optional<int> CheckRulesIfAsked(int argc, const char* const* argv) {
  if (argc < 2 || std::string_view(argv[1]) != "check-rules") return std::nullopt;
  if (argc == 3 && (std::string_view(argv[2]) == "--help" || std::string_view(argv[2]) == "-h")) {
    puts(
        "stackd check-rules FILE\n\nSays what is wrong in a file for --rules, and where. Exit code: 0, or 1 with a fault.");
    return 0;
  }
  if (argc != 3) {
    fputs("stackd: check-rules takes one file\n", stderr);
    return 2;
  }
  const auto rules = ReadRules(argv[2]);
  if (rules) {
    printf("%s: %zu rule%s\n", argv[2], rules->size(), rules->size() == 1 ? "" : "s");
    return 0;
  }
  for (const std::string& fault : rules.error()) fprintf(stderr, "%s\n", fault.c_str());
  return 1;
}

}  // namespace stackd

#include "daemon/detect/rules/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

constexpr char kGood[] = R"(rules:
  - name: stuck checkout
    filters:
      - process: "checkout*"
      - executable: /usr/bin/*
    trigger:
      type: no_progress
      after: 2min
    actions:
      - dump
      - run: /usr/local/bin/page
    limits:
      count: 5
      window: 1h
      cooldown: 30min
  - name: deadlocks anywhere
    trigger: {type: deadlock}
    actions: [dump]
)";

ProcessDescription Process(const std::string& name, const std::string& executable = "/usr/bin/x") {
  ProcessDescription process;
  process.display_name = name;
  process.executable = executable;
  return process;
}

std::vector<std::string> FaultsOf(const std::string& text) {
  const auto rules = ParseRules(text, "r.yaml");
  return rules ? std::vector<std::string>() : rules.error();
}

// A rule that is right but for `line` in place of one of its lines.
std::string With(const std::string& from, const std::string& to) {
  std::string text = kGood;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Rules, AreReadWithAllTheirParts) {
  const auto rules = ParseRules(kGood, "r.yaml");
  ASSERT_TRUE(rules.has_value()) << rules.error()[0];
  ASSERT_THAT(*rules, SizeIs(2));
  const Rule& rule = *(*rules)[0];
  EXPECT_EQ(rule.name, "stuck checkout");
  EXPECT_EQ(rule.process, "checkout*");
  EXPECT_EQ(rule.executable, "/usr/bin/*");
  EXPECT_EQ(rule.trigger, RuleTrigger::kStall);
  EXPECT_EQ(rule.after_ns, 120 * kNsPerSecond);
  EXPECT_EQ(rule.run, "/usr/local/bin/page");
  EXPECT_EQ(rule.count, 5);
  EXPECT_EQ(rule.window_ns, 3600 * kNsPerSecond);
  EXPECT_EQ(rule.cooldown_ns, 1800 * kNsPerSecond);
  EXPECT_EQ((*rules)[1]->trigger, RuleTrigger::kDeadlock);
  EXPECT_EQ((*rules)[1]->cooldown_ns, 600 * kNsPerSecond);
}

TEST(Rules, SayWhetherADumpMayInterrupt) {
  const auto quiet_of = [](const std::string& rule) {
    const auto rules = ParseRules("rules: [{name: x, actions: [dump], " + rule + "}]", "r.yaml");
    EXPECT_TRUE(rules.has_value()) << rules.error()[0];
    return rules ? (*rules)[0]->quiet : Quiet::kNever;
  };
  EXPECT_EQ(quiet_of("trigger: {type: deadlock}"), Quiet::kOnly);
  EXPECT_EQ(quiet_of("trigger: {type: no_progress}"), Quiet::kOnly);
  EXPECT_EQ(quiet_of("trigger: {type: spin}"), Quiet::kPrefer);
  EXPECT_EQ(quiet_of("trigger: {type: heartbeat}"), Quiet::kPrefer);
  EXPECT_EQ(quiet_of("quiet: prefer, trigger: {type: deadlock}"), Quiet::kPrefer);
  EXPECT_EQ(quiet_of("quiet: never, trigger: {type: spin}"), Quiet::kNever);
  EXPECT_THAT(FaultsOf("rules: [{name: x, actions: [dump], quiet: lony, trigger: {type: spin}}]"),
              ElementsAre(HasSubstr("\"lony\" in quiet")));
  for (const auto& rule : BuiltInRules()) EXPECT_EQ(rule->quiet, QuietOf(rule->trigger)) << rule->name;
}

TEST(Rules, TheFirstThatFitsIsTaken) {
  const auto rules = ParseRules(kGood, "r.yaml");
  ASSERT_TRUE(rules.has_value());
  EXPECT_EQ(FindRule(*rules, RuleTrigger::kStall, Process("checkout-7"))->name, "stuck checkout");
  EXPECT_EQ(FindRule(*rules, RuleTrigger::kStall, Process("cart")), nullptr);
  EXPECT_EQ(FindRule(*rules, RuleTrigger::kStall, Process("checkout-7", "/opt/x")), nullptr);
  EXPECT_EQ(FindRule(*rules, RuleTrigger::kDeadlock, Process("cart", "/opt/x"))->name, "deadlocks anywhere");
  EXPECT_EQ(FindRule(*rules, RuleTrigger::kSpin, Process("cart")), nullptr);
}

TEST(Rules, ProcessesThatDoNotEndAreNoticedBeforeTheyAreKilled) {
  const auto rules = ParseRules(R"(rules:
  - {name: a, trigger: {type: not_gone}, actions: [dump]}
  - {name: b, trigger: {type: not_gone, after: 3s}, actions: [dump]}
)",
                                "r.yaml");
  ASSERT_TRUE(rules.has_value()) << rules.error()[0];
  EXPECT_EQ((*rules)[0]->trigger, RuleTrigger::kShutdownTimeout);
  EXPECT_EQ((*rules)[0]->after_ns, 20 * kNsPerSecond);
  EXPECT_EQ((*rules)[1]->after_ns, 3 * kNsPerSecond);
}

TEST(Rules, BuiltInOnesCoverEachKindOfHangThatIsOneByItself) {
  for (RuleTrigger trigger : {RuleTrigger::kHeartbeat, RuleTrigger::kDeadlock, RuleTrigger::kSpin, RuleTrigger::kStall}) {
    ASSERT_NE(FindRule(BuiltInRules(), trigger, Process("any")), nullptr);
  }
  EXPECT_EQ(FindRule(BuiltInRules(), RuleTrigger::kCrash, Process("any")), nullptr);
  EXPECT_EQ(FindRule(BuiltInRules(), RuleTrigger::kShutdownTimeout, Process("any")), nullptr);
}

TEST(Rules, FaultsNameTheirPlace) {
  EXPECT_THAT(FaultsOf(With("type: no_progress", "type: no_progres")),
              ElementsAre("r.yaml:7:13: unknown trigger \"no_progres\" in type; did you mean \"no_progress\"?"));
  EXPECT_THAT(FaultsOf(With("cooldown: 30min", "coldown: 30min")),
              ElementsAre("r.yaml:15:7: unknown key \"coldown\" in limits; did you mean \"cooldown\"?"));
  EXPECT_THAT(FaultsOf(With("window: 1h", "window: 1")),
              ElementsAre("r.yaml:14:15: window: \"1\" is no duration; write it like 5s, 10min or 2h"));
  EXPECT_THAT(FaultsOf(With("count: 5", "count: 0")),
              ElementsAre("r.yaml:13:14: count must be a number from 1 to 1000000"));
  EXPECT_THAT(FaultsOf(With("count: 5", "count: 1000001")), SizeIs(1));
  EXPECT_THAT(FaultsOf(With("count: 5", "count: 1000000")), SizeIs(0));
}

TEST(Rules, EachFaultIsTold) {
  EXPECT_THAT(FaultsOf(With("count: 5", "count: many") + "  - name: third\n"),
              ElementsAre(HasSubstr(":13:14: count must be"), "r.yaml:19:5: the rule needs a trigger",
                          "r.yaml:19:5: the rule needs actions: dump, run, or both"));
}

TEST(Rules, WhatDoesNothingIsRefused) {
  const struct {
    std::string text;
    const char* fault;
  } kCases[] = {
      {"", "r.yaml:1:1: the file has no rules"},
      {"rules: []", ":1:8: rules must be a list of one rule or more"},
      {"rulez: []", "did you mean \"rules\"?"},
      {"- a", "the file must be a list of keys and values"},
      {With("      - dump\n", ""), ":2:5: the rule needs the action dump"},
      {With("/usr/local/bin/page", "page"), ":11:14: run takes the whole path"},
      {With("      - run: /usr/local/bin/page", "      - run"), "\"run\" needs a program"},
      {With("      - dump", "      - dumb"), "unknown action \"dumb\" in actions; did you mean \"dump\"?"},
      {With("type: no_progress", "type: heartbeat"), ":8:14: this trigger takes no \"after\": the program gives each"},
      {With("after: 2min", "after: 0s"), "must be a duration above 0"},
      {With("after: 2min", "after: 9999999999999999ms"), "after must be a duration"},
      {With("name: deadlocks anywhere", "name: stuck checkout"), "there is a rule \"stuck checkout\" already"},
      {With("executable: /usr/bin/*", "process: a"), "there is a filter \"process\" already"},
      {With("      count: 5", "      count: 5\n      count: 6"), ":14:7: the key \"count\" stands twice in limits"},
      {With("{type: deadlock}", "{type: crash}"), "a crash is dumped without a rule: give the action run"},
      {With("{type: deadlock}", "{type: deadlock"), "this is no YAML"},
      {With("name: stuck checkout", "name: [a]"), "name must be a text"},
  };
  for (const auto& [text, fault] : kCases) {
    const std::vector<std::string> faults = FaultsOf(text);
    ASSERT_FALSE(faults.empty()) << fault;
    EXPECT_THAT(faults[0], StartsWith("r.yaml:"));
    EXPECT_THAT(faults, testing::Contains(HasSubstr(fault)));
  }
}

TEST(Rules, ACrashMayRunAProgram) {
  const auto rules = ParseRules("rules: [{name: a, trigger: {type: crash}, actions: [dump, run: /bin/true]}]", "r.yaml");
  ASSERT_TRUE(rules.has_value()) << rules.error()[0];
  EXPECT_EQ((*rules)[0]->run, "/bin/true");
}

TEST(CheckRules, SaysHowItWentByItsExitCode) {
  const std::string file = testing::TempDir() + "rules_test." + std::to_string(getpid()) + ".yaml";
  const auto check = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "stackd");
    return CheckRulesIfAsked(static_cast<int>(arguments.size()), arguments.data());
  };
  std::ofstream(file) << kGood;
  EXPECT_EQ(check({"check-rules", file.c_str()}), 0);
  std::ofstream(file) << "rules: 7\n";
  EXPECT_EQ(check({"check-rules", file.c_str()}), 1);
  EXPECT_EQ(check({"check-rules", "/does/not/exist"}), 1);
  EXPECT_EQ(check({"check-rules", "/"}), 1);
  EXPECT_EQ(check({"check-rules"}), 2);
  EXPECT_EQ(check({"--dir", "x"}), std::nullopt);
  unlink(file.c_str());
}

}  // namespace
}  // namespace stackd

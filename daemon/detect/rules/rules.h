// What is to be noticed, in which processes, and what is done then: the file of --rules.
//
//     rules:
//       - name: stuck checkout
//         filters:
//           - process: "checkout*"
//           - executable: /usr/bin/*
//         trigger:
//           type: no_progress
//           after: 2min
//         quiet: only
//         actions:
//           - dump
//           - run: /usr/local/bin/page-somebody
//         limits:
//           count: 5
//           window: 1h
//           cooldown: 30min
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/capture/capture.h"

namespace stackd {

enum class RuleTrigger : uint8_t { kHeartbeat, kDeadlock, kSpin, kStall, kShutdownTimeout, kCrash };
inline constexpr size_t kRuleTriggers = 6;

struct Rule {
  std::string name;
  // Globs, as in a shell; empty: any.
  std::string process;
  std::string executable;
  RuleTrigger trigger = RuleTrigger::kDeadlock;
  int64_t after_ns = 60 * kNsPerSecond;  // of kSpin, kStall and kShutdownTimeout
  std::string run;                       // path of a program; empty: none
  // Threads that wait are read where they sleep. Of one that spins, or does not beat, only a signal shows the stack.
  Quiet quiet = Quiet::kOnly;
  // So many dumps in any `window`, and none of the same hang within `cooldown`.
  int64_t count = 10;
  int64_t window_ns = 60 * kNsPerSecond;
  int64_t cooldown_ns = 600 * kNsPerSecond;

  bool Fits(const ProcessDescription& process_description) const;
};

using Rules = std::vector<std::shared_ptr<const Rule>>;

// The default for a rule that does not say how quiet its dump is.
Quiet QuietOf(RuleTrigger trigger);

// The first rule with `trigger` for `process`; nullptr: there is none.
std::shared_ptr<const Rule> FindRule(const Rules& rules, RuleTrigger trigger, const ProcessDescription& process);

// Without --rules: a dump for each kind of hang, of any process.
Rules BuiltInRules();

// Faults are sentences with their place: "rules.yaml:7:12: ...".
std::expected<Rules, std::vector<std::string>> ParseRules(std::string_view text, const std::string& file);
std::expected<Rules, std::vector<std::string>> ReadRules(const std::string& file);

// `stackd check-rules FILE`: nullopt if that is not what was asked for, else the exit code.
std::optional<int> CheckRulesIfAsked(int argc, const char* const* argv);

}  // namespace stackd

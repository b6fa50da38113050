// The programs that rules run.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/base/result.h"
#include "daemon/capture/capture.h"
#include "daemon/detect/rules/rules.h"
#include "daemon/hooks/on_dump.h"

namespace stackd {

// Thread-safe.
class RuleActions {
 public:
  // Fails with one sentence if one of the programs cannot be run. `address`: for STACKD_ADDRESS.
  static Result<std::unique_ptr<RuleActions>> Start(Rules rules, const std::string& address);

  // Do not block.
  void Run(const std::string& program, const std::string& dump_name, const std::string& trigger);
  // Runs the program of the rule for it, if there is one and its limits allow it.
  void OnCrash(const ProcessDescription& process, const std::string& dump_name, int64_t now_ns);

 private:
  explicit RuleActions(Rules rules) : rules_(std::move(rules)) {}

  const Rules rules_;
  std::map<std::string, std::unique_ptr<OnDump>> programs_;  // by path
  std::mutex mutex_;
  std::map<const Rule*, std::deque<int64_t>> crashes_ns_;  // when each rule ran for one, within its window
};

}  // namespace stackd

#include "daemon/serve/requests/resolve_process.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "daemon/base/near_name.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

constexpr std::string_view kPrefix = "processes/";
constexpr size_t kMaxListed = 10;

std::string Describe(const ProcessDescription& process) {
  return std::string(kPrefix) + process.id + " (" + ToValidUtf8(process.display_name) + ")";
}

std::string Join(const std::vector<std::string>& words, std::string_view separator) {
  std::string result;
  for (size_t i = 0; i < words.size() && i < kMaxListed; ++i) {
    if (i > 0) result += separator;
    result += words[i];
  }
  if (words.size() > kMaxListed) result += " and " + std::to_string(words.size() - kMaxListed) + " more";
  return result;
}

ProcessChoice Failure(Code code, std::string message, std::string reason) {
  return {.error = {code, std::move(message), std::move(reason)}};
}

ProcessChoice Ambiguous(const std::string& what, const std::vector<const ProcessDescription*>& matches) {
  std::vector<std::string> described;
  ProcessChoice choice;
  for (const ProcessDescription* process : matches) {
    described.push_back(Describe(*process));
    choice.candidates.push_back(std::string(kPrefix) + process->id);
  }
  choice.error = {Code::kFailedPrecondition, what + "; name one of " + Join(described, ", "), "PROCESS_AMBIGUOUS"};
  return choice;
}

ProcessChoice NotFound(const std::string& typed, const std::vector<ProcessDescription>& processes) {
  std::vector<std::string> names, all;
  for (const ProcessDescription& process : processes) {
    names.push_back(ToValidUtf8(process.display_name));
    names.push_back(std::string(kPrefix) + process.id);
    all.push_back(Describe(process));
  }
  std::string message = "no connected process is \"" + ToValidUtf8(typed.substr(0, 256)) + "\"";
  std::vector<std::string> near = NearNames(typed, names);
  if (!near.empty()) {
    message += "; did you mean " + Join(near, " or ") + "?";
  } else if (!all.empty()) {
    message += "; there is " + Join(all, ", ");
  } else {
    message += ", nor is any other";
  }
  return Failure(Code::kNotFound, std::move(message), "PROCESS_NOT_FOUND");
}

std::vector<const ProcessDescription*> Matches(const std::string& typed, const std::vector<ProcessDescription>& processes) {
  auto matching = [&](auto matches) {
    std::vector<const ProcessDescription*> result;
    for (const ProcessDescription& process : processes) {
      if (matches(process)) result.push_back(&process);
    }
    return result;
  };
  std::string_view id = typed;
  bool is_name = id.starts_with(kPrefix);
  if (is_name) id.remove_prefix(kPrefix.size());
  auto by_id = matching([&](const ProcessDescription& process) { return process.id == id; });
  if (is_name || !by_id.empty()) return by_id;
  auto by_pid = matching([&](const ProcessDescription& process) { return std::to_string(process.pid) == typed; });
  if (!by_pid.empty()) return by_pid;
  return matching([&](const ProcessDescription& process) { return ToValidUtf8(process.display_name) == typed; });
}

}  // namespace

ProcessChoice ResolveProcess(const std::string& typed, const std::vector<ProcessDescription>& processes) {
  if (typed.empty() && processes.empty()) {
    return Failure(
        Code::kFailedPrecondition,
        "no process is connected: start one with LD_PRELOAD=/path/to/libstackd_agent.so and the STACKD_DIR of this daemon "
        "(stackctl doctor PID says what is in the way)",
        "NO_PROCESS");
  }
  std::vector<const ProcessDescription*> matches;
  if (typed.empty()) {
    for (const ProcessDescription& process : processes) matches.push_back(&process);
  } else {
    matches = Matches(typed, processes);
  }
  if (matches.size() == 1) return {.process = matches[0]};
  if (matches.empty()) return NotFound(typed, processes);
  return Ambiguous(typed.empty() ? std::to_string(matches.size()) + " processes are connected"
                                 : "\"" + typed + "\" is the name of " + std::to_string(matches.size()) + " processes",
                   matches);
}

}  // namespace stackd

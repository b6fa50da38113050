#include "daemon/serve/requests/resolve_process.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "daemon/base/near_name.h"
#include "daemon/base/text.h"
#include "daemon/resource/attributes.h"

namespace stackd {
namespace {

constexpr std::string_view kPrefix = "processes/";
constexpr size_t kMaxListed = 10;

const std::string* Attribute(const ProcessDescription& process, std::string_view key) {
  const auto found = process.resource_attributes.find(key);
  return found == process.resource_attributes.end() ? nullptr : &found->second;
}

// "processes/7-100 (worker)", or with pod and container, where these are known: "(checkout-5d8f/app: worker)".
std::string Describe(const ProcessDescription& process) {
  const std::string* pod = Attribute(process, kPodName);
  const std::string* container = Attribute(process, kContainerName);
  std::string place = pod == nullptr ? "" : *pod;
  if (container != nullptr) place += (place.empty() ? "" : "/") + *container;
  if (!place.empty()) place += ": ";
  return std::string(kPrefix) + process.id + " (" + place + ToValidUtf8(process.display_name) + ")";
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
    for (std::string_view key :
         {std::string_view(kPodName), std::string_view(kContainerName), std::string_view(kServiceName)}) {
      if (const std::string* name = Attribute(process, key)) names.push_back(*name);
    }
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

bool AttributeIs(const ProcessDescription& process, std::string_view key, std::string_view value) {
  const std::string* found = Attribute(process, key);
  return found != nullptr && *found == value;
}

// Whether it is in the pod or workload of that name.
bool IsIn(const ProcessDescription& process, std::string_view name) {
  return AttributeIs(process, kPodName, name) ||
         std::ranges::any_of(kWorkloadKeys, [&](const char* key) { return AttributeIs(process, key, name); });
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
  auto by_name = matching([&](const ProcessDescription& process) { return ToValidUtf8(process.display_name) == typed; });
  if (!by_name.empty()) return by_name;
  if (const size_t slash = typed.find('/'); slash != std::string::npos) {
    const std::string whole = typed.substr(0, slash), part = typed.substr(slash + 1);
    return matching([&](const ProcessDescription& process) {
      return IsIn(process, whole) &&
             (AttributeIs(process, kContainerName, part) || ToValidUtf8(process.display_name) == part);
    });
  }
  return matching([&](const ProcessDescription& process) {
    return IsIn(process, typed) || AttributeIs(process, kContainerName, typed);
  });
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
                                 : "\"" + ToValidUtf8(typed.substr(0, 256)) + "\" is the name of " +
                                       std::to_string(matches.size()) + " processes",
                   matches);
}

}  // namespace stackd

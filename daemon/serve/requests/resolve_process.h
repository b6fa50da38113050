// Which process a person means by "processes/7-123", "7", "checkout", "checkout/app" or nothing.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/capture/capture.h"

namespace stackd {

struct ProcessChoice {
  const ProcessDescription* process = nullptr;  // into the list that was given; nullptr: see `error`
  Status error = {Code::kUnknown, {}};
  std::vector<std::string> candidates;  // names, where several are meant
};

// `typed` is a resource name, an id, a pid or a display name, else the name of a pod, workload or container. "A/B" is
// container or process B in workload or pod A. Empty means the only process there is. Errors have the
// reasons of the API: NO_PROCESS, PROCESS_AMBIGUOUS, PROCESS_NOT_FOUND.
ProcessChoice ResolveProcess(const std::string& typed, const std::vector<ProcessDescription>& processes);

}  // namespace stackd

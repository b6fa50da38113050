// How stackctl ends; scripts rely on it.
#pragma once

#include "daemon/base/result.h"

namespace stackd {

enum ExitCode {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kNotFound = 3,
  kCannotConnect = 4,
  kPartial = 5,
};

// Code::kUnavailable without a reason of the API means that no daemon was reached.
inline ExitCode ExitCodeOf(const Status& status) {
  if (status.reason == "NO_PROCESS" || status.code == Code::kNotFound) return kNotFound;
  if (status.reason == "PROCESS_AMBIGUOUS" || status.code == Code::kInvalidArgument) return kUsage;
  if (status.code == Code::kUnavailable && status.reason.empty()) return kCannotConnect;
  if (status.code == Code::kDeadlineExceeded) return kPartial;
  return kFailure;
}

}  // namespace stackd

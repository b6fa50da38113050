// What a function gives that may fail: a value, or a Status with a code of google.rpc.Code and one sentence for a person.
//
// The codes are numerically equal to google.rpc.Code, so serve/ translates them without a table, and no other stage knows
// about gRPC. Expected imperfection (a truncated stack, a thread that did not answer) is data and not an error.
#pragma once

#include <expected>
#include <string>
#include <utility>

namespace stackd {

enum class Code {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

struct Status {
  Code code;
  std::string message;
  // Machine-readable reason of the API (proto/stackd/v1), "PROCESS_NOT_FOUND"; empty inside the daemon.
  std::string reason = {};
};

template <typename T>
using Result = std::expected<T, Status>;

inline std::unexpected<Status> Error(Code code, std::string message, std::string reason = {}) {
  return std::unexpected(Status{code, std::move(message), std::move(reason)});
}

}  // namespace stackd

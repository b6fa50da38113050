// The one place where the daemon's Status becomes gRPC's, with google.rpc error details.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <map>
#include <string>

#include "daemon/base/result.h"

namespace stackd {

// What an error is about, for the details that programs read.
struct ErrorSubject {
  std::string resource_type;  // "stackd.v1.Process": ResourceInfo
  std::string resource_name;
  std::string field;                            // of the request: BadRequest
  std::map<std::string, std::string> metadata;  // of ErrorInfo
  int64_t retry_after_ns = 0;                   // RetryInfo; 0: a second
};

// ErrorInfo (domain "stackd") if the status has a reason; ResourceInfo for NOT_FOUND; BadRequest for INVALID_ARGUMENT;
// RetryInfo where trying again helps.
grpc::Status ToGrpcStatus(const Status& status, const ErrorSubject& subject = {});

// The reason in its ErrorInfo; empty if it has none.
std::string ReasonOf(const grpc::Status& status);

}  // namespace stackd

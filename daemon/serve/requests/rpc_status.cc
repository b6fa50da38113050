#include "daemon/serve/requests/rpc_status.h"

#include "daemon/base/clock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace stackd {
namespace {

constexpr int64_t kRetryNs = kNsPerSecond;

bool RetryHelps(Code code) {
  return code == Code::kUnavailable || code == Code::kResourceExhausted || code == Code::kDeadlineExceeded;
}

}  // namespace

grpc::Status ToGrpcStatus(const Status& status, const ErrorSubject& subject) {
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code));
  details.set_message(status.message);
  if (!status.reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(status.reason);
    info.set_domain("stackd");
    info.mutable_metadata()->insert(subject.metadata.begin(), subject.metadata.end());
    details.add_details()->PackFrom(info);
  }
  if (status.code == Code::kNotFound && !subject.resource_type.empty()) {
    google::rpc::ResourceInfo resource;
    resource.set_resource_type(subject.resource_type);
    resource.set_resource_name(subject.resource_name);
    resource.set_description(status.message);
    details.add_details()->PackFrom(resource);
  }
  if (status.code == Code::kInvalidArgument && !subject.field.empty()) {
    google::rpc::BadRequest bad;
    google::rpc::BadRequest::FieldViolation* violation = bad.add_field_violations();
    violation->set_field(subject.field);
    violation->set_description(status.message);
    details.add_details()->PackFrom(bad);
  }
  if (RetryHelps(status.code)) {
    google::rpc::RetryInfo retry;
    const int64_t after_ns = subject.retry_after_ns == 0 ? kRetryNs : subject.retry_after_ns;
    retry.mutable_retry_delay()->set_seconds(after_ns / kNsPerSecond);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(after_ns % kNsPerSecond));
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code), status.message, details.SerializeAsString());
}

std::string ReasonOf(const grpc::Status& status) {
  google::rpc::Status details;
  if (status.ok() || !details.ParseFromString(status.error_details())) return {};
  for (const auto& detail : details.details()) {
    google::rpc::ErrorInfo info;
    if (detail.Is<google::rpc::ErrorInfo>() && detail.UnpackTo(&info)) return info.reason();
  }
  return {};
}

}  // namespace stackd

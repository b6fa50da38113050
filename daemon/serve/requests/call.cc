#include "daemon/serve/requests/call.h"

#include <utility>

#include "daemon/base/clock.h"
#include "daemon/serve/requests/rpc_status.h"

namespace stackd {
namespace {

// Smaller ones are not counted: they fit into the window of a connection, so that no reader is waited for.
constexpr size_t kCountedAnswerBytes = 64 << 10;

const char* CodeName(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return static_cast<size_t>(code) < std::size(kNames) ? kNames[code] : "UNKNOWN";
}

std::string HowToGet(const Grant& grant) {
  if (grant.caller == "loopback") return "call through the Unix socket, or give loopback more in the file of --access";
  if (grant.caller.ends_with(" in another container")) {
    return "call from the daemon's own container, or give it in the file of --access";
  }
  return "give it in the file of --access";
}

}  // namespace

Call::Call(AccessControl* access, std::shared_ptr<const AccessRules> rules, Grant grant, Method method, Deadline deadline)
    : access_(access),
      rules_(std::move(rules)),
      grant_(std::move(grant)),
      method_(std::move(method)),
      deadline_(deadline),
      start_ns_(MonotonicNs()) {}

Call::~Call() {
  if (answer_bytes_ > 0) access_->answers.End(grant_.caller, answer_bytes_);
  if (admitted_) access_->limits.EndCall(grant_.caller, method_.is_stream);
  const int64_t now_ns = MonotonicNs();
  access_->audit.Write({.caller = grant_.caller,
                        .role = grant_.role,
                        .method = method_.name,
                        .resource = method_.resource,
                        .status = CodeName(status_.error_code()),
                        .reason = ReasonOf(status_),
                        .duration_ns = now_ns - start_ns_},
                       now_ns);
  if (on_end_) on_end_(status_.error_code());
}

grpc::Status Call::Admit() {
  // First of all: each refusal for its role is a line of the audit.
  const auto begun = access_->limits.BeginCall(grant_, method_.is_stream, rules_->rates, start_ns_);
  if (!begun) {
    status_ = ToGrpcStatus(begun.error().status, {.retry_after_ns = begun.error().retry_after_ns});
    return status_;
  }
  admitted_ = true;
  at_once_ = *begun;
  if (grant_.role < method_.role) {
    status_ = ToGrpcStatus({Code::kPermissionDenied,
                            grant_.caller + " has the role " + std::string(RoleName(grant_.role)) + ", and " +
                                method_.name + " needs " + std::string(RoleName(method_.role)) + ": " + HowToGet(grant_),
                            "ROLE_MISSING"},
                           {.metadata = {{"caller", grant_.caller},
                                         {"role", std::string(RoleName(grant_.role))},
                                         {"needed", std::string(RoleName(method_.role))}}});
    return status_;
  }
  return grpc::Status::OK;
}

Result<void> Call::ChargeCapture() {
  const auto charged = access_->limits.Capture(grant_, rules_->rates, MonotonicNs());
  if (charged) return {};
  retry_after_ns_ = charged.error().retry_after_ns;
  return std::unexpected(charged.error().status);
}

grpc::Status Call::TakeTurn() {
  switch (access_->answers.TakeTurn(grant_.caller, deadline_)) {
    case AnswerBudget::Turn::kUnread:
      return ToGrpcStatus({Code::kResourceExhausted,
                           grant_.caller + " has not read the answers it was given; read them, or end those calls",
                           "ANSWERS_UNREAD"});
    case AnswerBudget::Turn::kBusy:
      return ToGrpcStatus({Code::kResourceExhausted, "too many large answers are being made; try again", "TOO_MANY_CALLS"},
                          {.retry_after_ns = kNsPerSecond});
    case AnswerBudget::Turn::kTaken:
      break;
  }
  turn_ = std::shared_ptr<void>(
      nullptr, [answers = &access_->answers, caller = grant_.caller](void*) { answers->GiveTurn(caller); });
  return grpc::Status::OK;
}

grpc::Status Call::Answered(grpc::Status status, size_t size_bytes) {
  status_ = std::move(status);
  if (!status_.ok() || size_bytes < kCountedAnswerBytes) return status_;
  access_->answers.Begin(grant_.caller, size_bytes);
  answer_bytes_ = size_bytes;
  return status_;
}

}  // namespace stackd

// One call, from the look at its caller until its answer has left.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "daemon/access/access_control.h"
#include "daemon/base/result.h"

namespace stackd {

class Call {
 public:
  using Deadline = std::chrono::system_clock::time_point;

  struct Method {
    std::string name;      // "CreateDump"
    std::string resource;  // as the caller named it
    Role role = Role::kAdmin;
    bool is_stream = false;
  };

  // `deadline`: the caller's; time_point::max() if it has none.
  Call(AccessControl* access, std::shared_ptr<const AccessRules> rules, Grant grant, Method method, Deadline deadline);
  // Writes the audit.
  ~Call();

  // `end` is told the status at the end.
  void OnEnd(std::function<void(grpc::StatusCode)> end) { on_end_ = std::move(end); }

  // Whether the caller has the role, and may call now.
  grpc::Status Admit();

  Deadline deadline() const { return deadline_; }
  // Tells callers with many calls, so that there is room for those that have few.
  bool has_many_at_once() const { return at_once_ > kFewCalls; }
  const std::string& caller() const { return grant_.caller; }

  // Charges a capture, before one that no other call causes as well.
  Result<void> ChargeCapture();
  // How long to wait after ChargeCapture failed; 0: it did not fail.
  int64_t retry_after_ns() const { return retry_after_ns_; }

  // Before an answer is built that may be large: waits a while, and fails if the caller leaves too much unread. It is given
  // back when the handle goes, which must be the last that is done for the answer.
  grpc::Status TakeTurn();
  std::shared_ptr<void> ReleaseTurn() { return std::move(turn_); }

  // Notes what the caller is told, with the memory that takes until the caller has read it.
  grpc::Status Answered(grpc::Status status, size_t size_bytes = 0);

 private:
  // More calls than a person and a dashboard make.
  static constexpr int kFewCalls = 8;

  AccessControl* const access_;
  const std::shared_ptr<const AccessRules> rules_;
  const Grant grant_;
  const Method method_;
  const Deadline deadline_;
  const int64_t start_ns_;
  bool admitted_ = false;
  int at_once_ = 0;
  int64_t retry_after_ns_ = 0;
  size_t answer_bytes_ = 0;
  std::shared_ptr<void> turn_;
  std::function<void(grpc::StatusCode)> on_end_;
  grpc::Status status_ = grpc::Status::CANCELLED;
};

}  // namespace stackd

#include "daemon/serve/guard/export_call.h"

#include <utility>

#include "daemon/serve/requests/rpc_status.h"

namespace stackd {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
// An export holds a whole dump and a thread.
constexpr auto kPieceWithin = std::chrono::seconds(30);
constexpr auto kAllWithin = std::chrono::minutes(10);

}  // namespace

ExportCall::ExportCall(grpc::CallbackServerContext* context, std::unique_ptr<Call> call)
    : context_(context), call_(std::move(call)), end_(std::chrono::steady_clock::now() + kAllWithin) {}

bool ExportCall::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kPieceBytes - response_.data().size());
    response_.mutable_data()->append(part);
    bytes.remove_prefix(part.size());
    if (response_.data().size() == kPieceBytes && !Flush()) return false;
  }
  return true;
}

bool ExportCall::Flush() {
  std::unique_lock lock(mutex_);
  if (response_.data().empty() || !reader_is_there_) return reader_is_there_;
  writing_ = true;
  lock.unlock();
  StartWrite(&response_);
  lock.lock();
  const auto is_written = [this] { return !writing_; };
  const auto within = std::min(end_, std::chrono::steady_clock::now() + kPieceWithin);
  if (!written_.wait_until(lock, within, is_written)) {
    is_too_slow_ = true;
    context_->TryCancel();
    written_.wait(lock, is_written);
  }
  response_.clear_data();
  return reader_is_there_;
}

void ExportCall::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  if (!ok) reader_is_there_ = false;
  written_.notify_all();
}

void ExportCall::Send(const std::function<grpc::Status(const Sink& sink)>& make) {
  grpc::Status status = make([this](std::string_view bytes) { return Add(bytes); });
  if (status.ok() && !Flush()) {
    status = is_too_slow_ ? ToGrpcStatus({Code::kDeadlineExceeded, "the export was not read in time", "EXPORT_UNREAD"})
                          : grpc::Status::CANCELLED;
  }
  const std::shared_ptr<void> turn = call_->ReleaseTurn();
  End(std::move(status));
}

void ExportCall::End(grpc::Status status) { Finish(call_->Answered(std::move(status))); }

}  // namespace stackd

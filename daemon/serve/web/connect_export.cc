#include "daemon/serve/web/connect_export.h"

#include <future>
#include <utility>

#include "daemon/serve/requests/rpc_status.h"
#include "daemon/serve/web/connect_stream.h"

namespace stackd {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
// An export holds a whole dump and a thread. The server bounds the time of one piece.
constexpr auto kAllWithin = std::chrono::minutes(10);

// Waits until what `write` sends has been sent; false: the client has gone.
template <typename Write>
bool AwaitWritten(Write write) {
  auto written = std::make_shared<std::promise<bool>>();
  std::future<bool> is_written = written->get_future();
  write([written](bool ok) { written->set_value(ok); });
  return is_written.get();
}

}  // namespace

ConnectExport::ConnectExport(std::shared_ptr<HttpReply> reply, const ConnectCodec& codec)
    : reply_(std::move(reply)), codec_(codec), end_(std::chrono::steady_clock::now() + kAllWithin) {}

bool ConnectExport::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kPieceBytes - response_.data().size());
    response_.mutable_data()->append(part);
    bytes.remove_prefix(part.size());
    if (response_.data().size() == kPieceBytes && !Flush()) return false;
  }
  return true;
}

bool ConnectExport::Flush() {
  if (is_late_ || is_gone_) return false;
  if (response_.data().empty()) return true;
  const std::string piece = MessageEnvelope(SerializeMessage(codec_, response_));
  response_.clear_data();
  is_late_ = std::chrono::steady_clock::now() >= end_;
  if (is_late_) return false;
  is_gone_ = !AwaitWritten([&](HttpReply::Written written) { reply_->Write(piece, std::move(written)); });
  return !is_gone_;
}

grpc::Status ConnectExport::Send(const std::function<grpc::Status(const Sink& sink)>& make) {
  const bool is_there =
      AwaitWritten([&](HttpReply::Written written) { reply_->Begin(StreamHead(codec_), [] {}, std::move(written)); });
  if (!is_there) return grpc::Status::CANCELLED;
  grpc::Status status = make([this](std::string_view bytes) { return Add(bytes); });
  if (status.ok() && !Flush()) {
    status = is_late_ ? ToGrpcStatus({Code::kDeadlineExceeded, "the export was not read in time", "EXPORT_UNREAD"})
                      : grpc::Status::CANCELLED;
  }
  FinishStream(reply_, status);
  return status;
}

}  // namespace stackd

#include "daemon/serve/web/connect_watch.h"

#include <utility>

#include "daemon/serve/web/connect_stream.h"

namespace stackd {

ConnectWatch::ConnectWatch(std::shared_ptr<Call> call, std::shared_ptr<HttpReply> reply, const ConnectCodec& codec)
    : call_(std::move(call)), reply_(std::move(reply)), codec_(codec) {}

void ConnectWatch::Begin(std::expected<std::shared_ptr<DumpWatch>, grpc::Status> watch) {
  if (!watch) return EndStream(reply_, codec_, call_->Answered(std::move(watch.error())));
  watch_ = std::move(*watch);
  self_ = shared_from_this();
  const auto gone = [watch = watch_] { watch->End(grpc::Status::CANCELLED); };
  // The head tells the client that from now on it misses nothing.
  const auto begun = [watch = watch_](bool ok) {
    if (!ok) watch->End(grpc::Status::CANCELLED);
    watch->Begin();
  };
  reply_->Begin(StreamHead(codec_), gone, begun);
}

void ConnectWatch::Write(const v1::WatchDumpsResponse& response) {
  reply_->Write(MessageEnvelope(SerializeMessage(codec_, response)), [watch = watch_](bool ok) { watch->Written(ok); });
}

void ConnectWatch::Finish(grpc::Status status) {
  FinishStream(reply_, call_->Answered(std::move(status)));
  self_.reset();
}

}  // namespace stackd

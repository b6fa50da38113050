#include "daemon/serve/web/connect_stream.h"

namespace stackd {

Result<void> ParseStreamMessage(const ConnectCodec& codec, const std::string& body, google::protobuf::Message* message) {
  const Result<std::string_view> opened = OpenEnvelope(body);
  if (!opened) return std::unexpected(opened.error());
  return ParseMessage(codec, std::string(*opened), message);
}

HttpAnswer StreamHead(const ConnectCodec& codec) { return {200, "", {{"Content-Type", codec.ContentType()}}}; }

void EndStream(const std::shared_ptr<HttpReply>& reply, const ConnectCodec& codec, const grpc::Status& status) {
  const auto begun = [reply, status](bool ok) {
    if (ok) FinishStream(reply, status);
  };
  reply->Begin(StreamHead(codec), [] {}, begun);
}

void FinishStream(const std::shared_ptr<HttpReply>& reply, const grpc::Status& status) {
  reply->Write(EndEnvelope(status), [reply](bool ok) {
    if (ok) reply->End();
  });
}

}  // namespace stackd

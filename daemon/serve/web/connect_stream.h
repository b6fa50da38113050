// What the streams of the Connect protocol have in common.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <string>

#include "daemon/base/result.h"
#include "daemon/http/http_message.h"
#include "daemon/serve/web/connect_codec.h"

namespace stackd {

// The one message that a client sends to a stream of ours.
Result<void> ParseStreamMessage(const ConnectCodec& codec, const std::string& body, google::protobuf::Message* message);

HttpAnswer StreamHead(const ConnectCodec& codec);

// Begins a stream, and ends it with this status.
void EndStream(const std::shared_ptr<HttpReply>& reply, const ConnectCodec& codec, const grpc::Status& status);
// Ends a stream that has begun, when nothing is being written.
void FinishStream(const std::shared_ptr<HttpReply>& reply, const grpc::Status& status);

}  // namespace stackd

// Messages and errors of the Connect protocol (connectrpc.com/docs/protocol).
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "daemon/http/http_message.h"

namespace stackd {

// How the client writes messages, by the Content-Type of its request.
struct ConnectCodec {
  bool is_json = true;
  bool is_stream = false;

  std::string ContentType() const;
};

// nullopt for a type that is none of Connect's.
std::optional<ConnectCodec> CodecOf(std::string_view content_type);

// Fails with one sentence that names the place of the fault.
Result<void> ParseMessage(const ConnectCodec& codec, const std::string& body, google::protobuf::Message* message);
std::string SerializeMessage(const ConnectCodec& codec, const google::protobuf::Message& message);

// In a stream each message, and the end, stands behind a byte of flags and its length.
Result<std::string_view> OpenEnvelope(std::string_view body);
std::string MessageEnvelope(std::string_view message);
std::string EndEnvelope(const grpc::Status& status);

// The answer of a unary call that failed: {"code": "not_found", "message": "...", "details": [...]}.
HttpAnswer ErrorAnswer(const grpc::Status& status);

// Connect-Timeout-Ms, from now on; nullopt: it is not understood. No such field: no deadline.
std::optional<std::chrono::system_clock::time_point> DeadlineOf(const HttpRequest& request);

}  // namespace stackd

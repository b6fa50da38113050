#include "daemon/serve/web/connect_codec.h"

#include <absl/strings/escaping.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <charconv>
#include <iterator>
#include <limits>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace stackd {
namespace {

constexpr size_t kEnvelopeBytes = 5;
constexpr char kCompressed = 1, kEndOfStream = 2;
constexpr size_t kMaxTimeoutDigits = 10;

struct ConnectCode {
  const char* name;
  unsigned http_status;
};

// By the number of gRPC's code, from 1 on (connectrpc.com/docs/protocol, "Error codes").
constexpr ConnectCode kCodes[] = {
    {"canceled", 499},
    {"unknown", 500},
    {"invalid_argument", 400},
    {"deadline_exceeded", 504},
    {"not_found", 404},
    {"already_exists", 409},
    {"permission_denied", 403},
    {"resource_exhausted", 429},
    {"failed_precondition", 400},
    {"aborted", 409},
    {"out_of_range", 400},
    {"unimplemented", 501},
    {"internal", 500},
    {"unavailable", 503},
    {"data_loss", 500},
    {"unauthenticated", 401},
};

const ConnectCode& CodeOf(const grpc::Status& status) {
  const size_t index = static_cast<size_t>(status.error_code()) - 1;
  return index < std::size(kCodes) ? kCodes[index] : kCodes[1];
}

std::string JsonOf(const google::protobuf::Message& message) {
  std::string json;
  // Strings of ours are valid UTF-8 by then, which is all that it can fail for.
  (void)google::protobuf::util::MessageToJsonString(message, &json);
  return json;
}

std::string Quoted(std::string_view text) {
  google::protobuf::Value value;
  value.set_string_value(std::string(text));
  return JsonOf(value);
}

template <typename Detail>
std::string DebugOf(const google::protobuf::Any& any) {
  Detail detail;
  return any.UnpackTo(&detail) ? JsonOf(detail) : "";
}

// "debug" is for people: the value is binary.
std::string DetailJson(const google::protobuf::Any& any) {
  const std::string& url = any.type_url();
  std::string value = absl::Base64Escape(any.value());
  while (value.ends_with('=')) value.pop_back();
  std::string debug;
  for (auto* of : {DebugOf<google::rpc::ErrorInfo>, DebugOf<google::rpc::ResourceInfo>, DebugOf<google::rpc::BadRequest>,
                   DebugOf<google::rpc::RetryInfo>}) {
    if (debug.empty()) debug = of(any);
  }
  return "{\"type\":" + Quoted(url.substr(url.rfind('/') + 1)) + ",\"value\":\"" + value + "\"" +
         (debug.empty() ? "" : ",\"debug\":" + debug) + "}";
}

std::string ErrorJson(const grpc::Status& status) {
  google::rpc::Status rich;
  std::string details;
  if (rich.ParseFromString(status.error_details())) {
    for (const auto& any : rich.details()) details += (details.empty() ? "" : ",") + DetailJson(any);
  }
  return std::string("{\"code\":\"") + CodeOf(status).name + "\",\"message\":" + Quoted(status.error_message()) +
         (details.empty() ? "" : ",\"details\":[" + details + "]") + "}";
}

std::string Envelope(char flags, std::string_view message) {
  std::string envelope(1, flags);
  for (int shift = 24; shift >= 0; shift -= 8) envelope += static_cast<char>(message.size() >> shift);
  return envelope.append(message);
}

}  // namespace

std::string ConnectCodec::ContentType() const {
  return std::string("application/") + (is_stream ? "connect+" : "") + (is_json ? "json" : "proto");
}

std::optional<ConnectCodec> CodecOf(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  for (const bool is_json : {true, false}) {
    for (const bool is_stream : {false, true}) {
      const ConnectCodec codec{is_json, is_stream};
      if (type == codec.ContentType()) return codec;
    }
  }
  return std::nullopt;
}

Result<void> ParseMessage(const ConnectCodec& codec, const std::string& body, google::protobuf::Message* message) {
  if (!codec.is_json) {
    if (message->ParseFromString(body)) return {};
    return Error(Code::kInvalidArgument, "the body is no " + message->GetDescriptor()->full_name());
  }
  const auto parsed = google::protobuf::util::JsonStringToMessage(body, message);
  if (parsed.ok()) return {};
  return Error(Code::kInvalidArgument,
               "the body is no " + message->GetDescriptor()->full_name() + " in JSON: " + std::string(parsed.message()));
}

std::string SerializeMessage(const ConnectCodec& codec, const google::protobuf::Message& message) {
  return codec.is_json ? JsonOf(message) : message.SerializeAsString();
}

Result<std::string_view> OpenEnvelope(std::string_view body) {
  const auto fault = [](const char* what) { return Error(Code::kInvalidArgument, what); };
  if (body.size() < kEnvelopeBytes) return fault("the body is no message of a stream: its head is not whole");
  if ((body[0] & kCompressed) != 0) return fault("compressed messages are not read here");
  size_t length = 0;
  for (size_t i = 1; i < kEnvelopeBytes; ++i) length = length << 8 | static_cast<unsigned char>(body[i]);
  if (length != body.size() - kEnvelopeBytes) return fault("the body is not one message of the length that its head tells");
  return body.substr(kEnvelopeBytes);
}

std::string MessageEnvelope(std::string_view message) { return Envelope(0, message); }

std::string EndEnvelope(const grpc::Status& status) {
  return Envelope(kEndOfStream, status.ok() ? "{}" : "{\"error\":" + ErrorJson(status) + "}");
}

HttpAnswer ErrorAnswer(const grpc::Status& status) {
  return {CodeOf(status).http_status, ErrorJson(status), {{"Content-Type", "application/json"}}};
}

std::optional<std::chrono::system_clock::time_point> DeadlineOf(const HttpRequest& request) {
  const std::string_view text = request.Field("connect-timeout-ms");
  if (text.empty()) return std::chrono::system_clock::time_point::max();
  int64_t ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (error != std::errc() || end != text.data() + text.size() || ms < 0 || text.size() > kMaxTimeoutDigits) {
    return std::nullopt;
  }
  return std::chrono::system_clock::now() + std::chrono::milliseconds(ms);
}

}  // namespace stackd

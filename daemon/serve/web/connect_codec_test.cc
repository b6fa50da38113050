#include "daemon/serve/web/connect_codec.h"

#include <gtest/gtest.h>

#include "daemon/serve/requests/rpc_status.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {
namespace {

constexpr ConnectCodec kJson{.is_json = true, .is_stream = false}, kProto{.is_json = false, .is_stream = false};

TEST(ConnectCodecTest, TheContentTypeTellsHowMessagesAreWritten) {
  for (const char* type :
       {"application/json", "application/proto", "application/connect+json", "application/connect+proto"}) {
    const auto codec = CodecOf(type);
    ASSERT_TRUE(codec) << type;
    EXPECT_EQ(codec->ContentType(), type);
  }
  EXPECT_TRUE(CodecOf("application/json; charset=utf-8"));
  for (const char* type :
       {"", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "application/grpc"}) {
    EXPECT_FALSE(CodecOf(type)) << type;
  }
}

TEST(ConnectCodecTest, AMessageIsReadAsItWasWritten) {
  v1::GetDumpRequest request;
  request.set_name("processes/1-2/dumps/x \"<\n");
  request.set_view(v1::DUMP_VIEW_TEXT);
  for (const ConnectCodec& codec : {kJson, kProto}) {
    v1::GetDumpRequest read;
    ASSERT_TRUE(ParseMessage(codec, SerializeMessage(codec, request), &read));
    EXPECT_EQ(read.SerializeAsString(), request.SerializeAsString());
  }
}

TEST(ConnectCodecTest, AWrongBodyIsNamed) {
  for (const char* body : {"", "{", "[]", "{\"title\": \"x\"}", "{\"view\": \"NONSENSE\"}", "{\"name\": 7}x"}) {
    v1::GetDumpRequest request;
    const Result<void> parsed = ParseMessage(kJson, body, &request);
    ASSERT_FALSE(parsed) << body;
    EXPECT_TRUE(parsed.error().message.starts_with("the body is no stackd.v1.GetDumpRequest in JSON: "))
        << parsed.error().message;
  }
  v1::GetDumpRequest request;
  EXPECT_FALSE(ParseMessage(kProto, "\xff\xff", &request));
  const std::string deep = std::string(50'000, '[') + std::string(50'000, ']');
  EXPECT_FALSE(ParseMessage(kJson, deep, &request));
}

TEST(ConnectCodecTest, AnEnvelopeIsOpened) {
  const std::string envelope = MessageEnvelope("{}");
  EXPECT_EQ(envelope, std::string("\0\0\0\0\2{}", 7));
  EXPECT_EQ(OpenEnvelope(envelope).value(), "{}");
  for (const std::string& wrong :
       {std::string(), std::string("\0\0\0", 3), std::string("\0\0\0\0\3{}", 7), std::string("\0\0\0\0\1{}", 7),
        std::string("\0\xff\xff\xff\xff{}", 7), std::string("\1\0\0\0\2{}", 7)}) {
    EXPECT_FALSE(OpenEnvelope(wrong));
  }
  EXPECT_EQ(EndEnvelope(grpc::Status::OK), std::string("\2\0\0\0\2{}", 7));
}

TEST(ConnectCodecTest, AnErrorHasItsCodeAndDetails) {
  const HttpAnswer answer = ErrorAnswer(ToGrpcStatus({Code::kNotFound, "there is no \"x\"", "DUMP_NOT_FOUND"},
                                                     {.resource_type = "stackd.v1.Dump", .resource_name = "x"}));
  EXPECT_EQ(answer.status, 404u);
  EXPECT_TRUE(answer.body.starts_with("{\"code\":\"not_found\",\"message\":\"there is no \\\"x\\\"\",\"details\":["))
      << answer.body;
  EXPECT_NE(answer.body.find("{\"type\":\"google.rpc.ErrorInfo\",\"value\":\""), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("\"reason\":\"DUMP_NOT_FOUND\""), std::string::npos) << answer.body;
  EXPECT_EQ(ErrorAnswer({grpc::StatusCode::UNAUTHENTICATED, ""}).status, 401u);
  EXPECT_EQ(ErrorAnswer({grpc::StatusCode::CANCELLED, ""}).status, 499u);
}

TEST(ConnectCodecTest, ADeadlineIsReadOrRefused) {
  HttpRequest request;
  EXPECT_EQ(DeadlineOf(request), std::chrono::system_clock::time_point::max());
  request.fields["connect-timeout-ms"] = "60000";
  const auto deadline = DeadlineOf(request);
  ASSERT_TRUE(deadline);
  EXPECT_GT(*deadline, std::chrono::system_clock::now() + std::chrono::seconds(30));
  for (const char* wrong : {"x", "-1", "1s", "99999999999", " 1"}) {
    request.fields["connect-timeout-ms"] = wrong;
    EXPECT_FALSE(DeadlineOf(request)) << wrong;
  }
}

}  // namespace
}  // namespace stackd

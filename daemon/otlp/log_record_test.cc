#include "daemon/otlp/log_record.h"

#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "daemon/otlp/endpoint.h"

namespace stackd {
namespace {

using opentelemetry::proto::common::v1::AnyValue;

std::map<std::string, std::string> Texts(
    const google::protobuf::RepeatedPtrField<opentelemetry::proto::common::v1::KeyValue>& pairs) {
  std::map<std::string, std::string> texts;
  for (const auto& pair : pairs) {
    switch (pair.value().value_case()) {
      case AnyValue::kIntValue:
        texts[pair.key()] = std::to_string(pair.value().int_value());
        break;
      case AnyValue::kArrayValue:
        texts[pair.key()] = "[" + pair.value().array_value().values(0).string_value() + "]";
        break;
      default:
        texts[pair.key()] = pair.value().string_value();
    }
  }
  return texts;
}

v1::Dump MakeDump() {
  v1::Dump dump;
  dump.set_name("processes/7-1/dumps/20261121T031502Z-1");
  dump.mutable_process()->set_pid(7);
  dump.mutable_process()->set_display_name("checkout");
  dump.mutable_process()->set_executable("/usr/bin/checkout");
  dump.mutable_process()->set_hostname("checkout-0");
  dump.mutable_create_time()->set_seconds(1795230902);
  dump.mutable_create_time()->set_nanos(5);
  dump.mutable_thread_counts()->set_listed(12);
  v1::Thread* thread = dump.add_threads();
  thread->set_tid(8);
  thread->set_name("walker");
  thread->set_stack(0);
  v1::Frame* frame = dump.add_stacks()->add_frames();
  frame->set_function("Walk(int)");
  frame->set_file("/src/walk.cc");
  frame->set_line(12);
  v1::Module* module = dump.add_modules();
  module->set_path("/usr/bin/checkout");
  module->set_build_id("1a2b");
  return dump;
}

// By the table of RFC 4648.
std::string FromBase64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0, count = 0;
  for (char c : text) {
    const size_t value = digits.find(c);
    if (value == std::string::npos) break;
    bits = bits << 6 | static_cast<unsigned>(value);
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8));
  }
  return bytes;
}

std::string Gunzip(const std::string& bytes) {
  google::protobuf::io::ArrayInputStream compressed(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::GzipInputStream plain(&compressed, google::protobuf::io::GzipInputStream::GZIP);
  std::string text;
  const void* piece = nullptr;
  for (int size = 0; plain.Next(&piece, &size);) text.append(static_cast<const char*>(piece), static_cast<size_t>(size));
  return text;
}

v1::Dump MakeCrash() {
  v1::Dump dump = MakeDump();
  dump.mutable_crash()->set_tid(8);
  dump.mutable_crash()->set_signal_name("SIGSEGV");
  dump.mutable_crash()->set_explanation("null dereference in Walk(int)");
  dump.mutable_crash()->set_fingerprint("f00");
  return dump;
}

TEST(LogRecordTest, ACrashIsAnException) {
  const auto logs = ToResourceLogs(MakeCrash(), 99);
  const auto& record = logs.scope_logs(0).log_records(0);
  EXPECT_EQ(record.event_name(), "exception");
  EXPECT_EQ(record.severity_number(), 21);
  EXPECT_EQ(record.time_unix_nano(), 1795230902'000000005u);
  EXPECT_EQ(record.observed_time_unix_nano(), 99u);
  EXPECT_EQ(record.body().string_value(), "null dereference in Walk(int)");
  const auto attributes = Texts(record.attributes());
  EXPECT_EQ(attributes.at("exception.type"), "SIGSEGV");
  EXPECT_EQ(attributes.at("exception.message"), "null dereference in Walk(int)");
  EXPECT_NE(attributes.at("exception.stacktrace").find("Walk(int)"), std::string::npos);
  EXPECT_EQ(attributes.at("thread.id"), "8");
  EXPECT_EQ(attributes.at("thread.name"), "walker");
  EXPECT_EQ(attributes.at("stackd.fingerprint"), "f00");
  EXPECT_EQ(attributes.at("stackd.trigger"), "CRASH");
  EXPECT_EQ(attributes.at("stackd.dump.name"), "processes/7-1/dumps/20261121T031502Z-1");
  EXPECT_EQ(attributes.at("stackd.dump.thread_count"), "12");
}

TEST(LogRecordTest, AHangIsAnEventOfOurOwn) {
  v1::Dump dump = MakeDump();
  dump.mutable_hang()->set_cause(v1::Hang::DEADLOCK);
  dump.mutable_hang()->set_explanation("2 threads wait for each other");
  dump.mutable_hang()->set_tid(8);
  dump.mutable_hang()->set_fingerprint("161830216167ca34c499304063ff1343");
  const auto logs = ToResourceLogs(dump, 0);
  const auto& record = logs.scope_logs(0).log_records(0);
  EXPECT_EQ(record.event_name(), "stackd.hang");
  EXPECT_EQ(record.severity_number(), 17);
  EXPECT_EQ(Texts(record.attributes()).at("stackd.hang.cause"), "DEADLOCK");
  EXPECT_EQ(Texts(record.attributes()).at("stackd.fingerprint"), "161830216167ca34c499304063ff1343");
  EXPECT_EQ(Texts(record.attributes()).at("stackd.trigger"), "HANG");
  EXPECT_FALSE(Texts(record.attributes()).contains("stackd.hang.heartbeat"));
}

TEST(LogRecordTest, TheResourceIsThatOfTheProcess) {
  v1::Dump dump = MakeCrash();
  auto texts = Texts(ToResourceLogs(dump, 0).resource().attributes());
  EXPECT_EQ(texts.at("service.name"), "unknown_service:checkout");
  EXPECT_EQ(texts.at("process.pid"), "7");
  EXPECT_EQ(texts.at("process.executable.name"), "checkout");
  EXPECT_EQ(texts.at("process.executable.build_id.gnu"), "1a2b");
  auto& place = *dump.mutable_process()->mutable_resource_attributes();
  place["service.name"] = "paid";
  place["k8s.pod.name"] = "checkout-0";
  place["container.image.tags"] = "1.4";
  texts = Texts(ToResourceLogs(dump, 0).resource().attributes());
  EXPECT_EQ(texts.at("service.name"), "paid");
  EXPECT_EQ(texts.at("k8s.pod.name"), "checkout-0");
  EXPECT_EQ(texts.at("container.image.tags"), "[1.4]");
}

TEST(LogRecordTest, NoKeyOfTheResourceStandsTwice) {
  v1::Dump dump = MakeCrash();
  dump.mutable_process()->set_hostname("vm");
  auto& place = *dump.mutable_process()->mutable_resource_attributes();
  place["host.name"] = "node-1";
  place["process.pid"] = "1";
  std::map<std::string, int> counts;
  const auto logs = ToResourceLogs(dump, 0);
  for (const auto& attribute : logs.resource().attributes()) ++counts[attribute.key()];
  EXPECT_EQ(counts["host.name"], 1);
  EXPECT_EQ(counts["process.pid"], 1);
  EXPECT_EQ(Texts(logs.resource().attributes()).at("host.name"), "node-1");
}

TEST(LogRecordTest, ALongStackIsCutAtTheEndOfALine) {
  v1::Dump dump = MakeCrash();
  for (int i = 0; i < 2000; ++i) dump.mutable_stacks(0)->add_frames()->set_function("F" + std::to_string(i) + "é");
  const auto stack = Texts(ToResourceLogs(dump, 0).scope_logs(0).log_records(0).attributes()).at("exception.stacktrace");
  EXPECT_LE(stack.size(), (16u << 10) + 32);
  EXPECT_TRUE(stack.ends_with("\n[more in the dump]\n"));
}

TEST(LogRecordTest, AWholeDumpIsInARecordOfItsOwn) {
  const v1::Dump dump = MakeCrash();
  const auto logs = ToDumpLogs(dump, 99);
  ASSERT_TRUE(logs) << logs.error().message;
  const auto event = ToResourceLogs(dump, 99);
  EXPECT_EQ(logs->resource().SerializeAsString(), event.resource().SerializeAsString());
  const auto& record = logs->scope_logs(0).log_records(0);
  EXPECT_EQ(record.event_name(), "stackd.dump");
  EXPECT_EQ(record.severity_number(), 9);
  EXPECT_EQ(record.time_unix_nano(), event.scope_logs(0).log_records(0).time_unix_nano());
  const auto attributes = Texts(record.attributes());
  EXPECT_EQ(attributes.at("stackd.fingerprint"), "f00");
  EXPECT_EQ(attributes.at("stackd.dump.name"), dump.name());
  EXPECT_EQ(attributes.at("stackd.dump.trigger"), "CRASH");
  // By it crashes are counted.
  EXPECT_FALSE(attributes.contains("stackd.trigger"));
  const std::string json = Gunzip(FromBase64(record.body().string_value()));
  EXPECT_EQ(attributes.at("stackd.dump.bytes"), std::to_string(json.size()));
  EXPECT_TRUE(attributes.at("stackd.dump.digest").starts_with("sha256:"));
  v1::Dump again;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &again).ok()) << json;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(dump, again)) << json;
}

TEST(LogRecordTest, ADumpThatIsTooLargeForAnAnswerOrACollectorIsRefused) {
  v1::Dump dump = MakeCrash();
  for (int i = 0; i < 5'000; ++i) dump.add_notes(std::string(1000, 'x'));
  ASSERT_FALSE(ToDumpLogs(dump, 0));
  EXPECT_EQ(ToDumpLogs(dump, 0).error().message, "it has more than 4032 KiB");
  dump.clear_notes();
  // Text that does not become smaller.
  uint64_t random = 1;
  for (int i = 0; i < 3'000; ++i) {
    std::string note;
    while (note.size() < 1000) note += static_cast<char>('!' + (random = random * 6364136223846793005u + 1) % 997 % 90);
    dump.add_notes(note);
  }
  ASSERT_FALSE(ToDumpLogs(dump, 0));
  EXPECT_EQ(ToDumpLogs(dump, 0).error().message, "its compressed form has more than 1024 KiB");
}

TEST(LogRecordTest, OtherDumpsAreNoEvents) {
  EXPECT_FALSE(IsEvent(MakeDump()));
  EXPECT_TRUE(IsEvent(MakeCrash()));
}

TEST(EndpointTest, UrlsAreUnderstoodAsSdksUnderstandThem) {
  EXPECT_EQ(ParseEndpoint("http://localhost:4317")->target, "localhost:4317");
  EXPECT_FALSE(ParseEndpoint("http://localhost:4317")->has_tls);
  EXPECT_TRUE(ParseEndpoint("https://collector.example/")->has_tls);
  EXPECT_EQ(ParseEndpoint("https://collector.example/")->target, "collector.example:4317");
  EXPECT_EQ(ParseEndpoint("http://[::1]")->target, "[::1]:4317");
  EXPECT_EQ(ParseEndpoint("http://[::1]:99")->target, "[::1]:99");
  for (const char* bad : {"", "localhost:4317", "http://", "http://x:0", "http://x:99999", "http://x/v1/logs", "ftp://x",
                          "http://user@x", "http://x:y", "http://a:b:1"}) {
    const auto endpoint = ParseEndpoint(bad);
    ASSERT_FALSE(endpoint) << bad;
    EXPECT_NE(endpoint.error().message.find("is not understood"), std::string::npos) << bad;
  }
}

TEST(EndpointTest, HeadersAreTakenOrAMistakeIsTold) {
  // Tokens of service accounts have a thousand bytes and more.
  const std::string token(2000, 'x');
  const auto headers = ParseHeaders("Authorization=Bearer%20" + token + ", team=a");
  ASSERT_TRUE(headers) << headers.error().message;
  EXPECT_EQ(*headers, (Headers{{"authorization", "Bearer " + token}, {"team", "a"}}));
  for (const auto& [text, mistake] : {std::pair{"nonsense", "is not understood"},
                                      {"a=b,nonsense", "is not understood"},
                                      {"a=%zz", "is not understood"},
                                      {"grpc-timeout=1", "\"grpc-timeout\""},
                                      {"x-bin=1", "\"x-bin\""},
                                      {"a/b=1", "\"a/b\""},
                                      {"bad key=1", "\"bad key\""},
                                      {"team=%C3%A9", "\"team\""}}) {
    const auto refused = ParseHeaders(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().message.find(mistake), std::string::npos) << refused.error().message;
  }
  EXPECT_FALSE(ParseHeaders("a=" + std::string(9000, 'x')));
}

}  // namespace
}  // namespace stackd

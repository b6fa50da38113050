#include "daemon/log/log.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

namespace stackd {
namespace {

TEST(LogLine, IsJsonWhateverAProcessCallsItself) {
  std::string hostile = "a\"b\\c\n\x1b[31m\xff\xc3\xa9";
  std::string line = "{" + FormatLogLine(LogFormat::kJson, "dump \"stored\"", {{"process", hostile}, {"threads", 3}}) + "}";
  google::protobuf::Struct object;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &object).ok()) << line;
  EXPECT_EQ(object.fields().at("msg").string_value(), "dump \"stored\"");
  EXPECT_EQ(object.fields().at("process").string_value(), "a\"b\\c??[31m?\xc3\xa9");
  EXPECT_EQ(object.fields().at("threads").number_value(), 3);
}

TEST(LogLine, AsTextHasNoControlCharacters) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, "dump stored", {{"process", "a\nb"}, {"threads", 3}}),
            "dump stored  process=a?b  threads=3");
}

TEST(Log, OnAPipeIsOneJsonObjectPerLineWithNanoseconds) {
  testing::internal::CaptureStderr();
  StartLog(LogFormat::kJson, LogLevel::kInfo);
  Log(LogLevel::kInfo, "stackd is ready", {{"dir", "/run/stackd"}});
  Log(LogLevel::kDebug, "not shown");
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::MatchesRegex("\\{\"ts\":\"[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+\\.[0-9]{9}Z\",\"level\":\"info\","
                            "\"msg\":\"stackd is ready\",\"dir\":\"/run/stackd\"\\}\n"));
}

TEST(LogTest, EachLineOfJsonSaysWhereTheDaemonRuns) {
  const LogPlace place{{"k8s.pod.name", "checkout-0"}};
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, "m", {{"a", 1}}, place), R"("msg":"m","a":1,"k8s.pod.name":"checkout-0")");
  EXPECT_EQ(FormatLogLine(LogFormat::kText, "m", {{"a", 1}}, place), "m  a=1");
}

TEST(LogTest, WhatIsNotKnownIsLeftOut) {
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, "m", {LogField::IfKnown("c", ""), LogField::IfKnown("d", "x")}),
            R"("msg":"m","d":"x")");
  EXPECT_EQ(FormatLogLine(LogFormat::kText, "m", {LogField::IfKnown("c", "")}), "m");
}

}  // namespace
}  // namespace stackd

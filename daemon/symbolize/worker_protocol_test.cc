#include "daemon/symbolize/worker_protocol.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace stackd {
namespace {

SourceLocation Example() {
  SourceLocation location;
  location.frames = {{"inner", "a.cc", 3, true, Language::kRust}, {"outer", "b.cc", 70'000, false}};
  location.unnamed_reason = "why";
  return location;
}

AnswerHeader HeaderOf(const std::string& answer) {
  AnswerHeader header;
  memcpy(&header, answer.data(), sizeof(header));
  return header;
}

TEST(WorkerProtocol, AnAnswerArrivesAsItWasSent) {
  std::string answer;
  AppendAnswer(7, SymbolQuality::kDwarf, Example(), &answer);
  AnswerHeader header = HeaderOf(answer);
  EXPECT_EQ(header.address_index, 7u);
  EXPECT_EQ(header.quality, SymbolQuality::kDwarf);
  EXPECT_EQ(header.body_bytes, answer.size() - sizeof(header));
  auto location = ParseAnswerBody(header.frame_count, std::string_view(answer).substr(sizeof(header)));
  ASSERT_TRUE(location.has_value());
  ASSERT_EQ(location->frames.size(), 2u);
  EXPECT_EQ(location->frames[0].function, "inner");
  EXPECT_TRUE(location->frames[0].inlined);
  EXPECT_EQ(location->frames[0].language, Language::kRust);
  EXPECT_EQ(location->frames[1].file, "b.cc");
  EXPECT_EQ(location->frames[1].line, 70'000);
  EXPECT_EQ(location->unnamed_reason, "why");
}

TEST(WorkerProtocol, AnAnswerIsRefusedAtEveryOtherLength) {
  std::string answer;
  AppendAnswer(0, SymbolQuality::kDwarf, Example(), &answer);
  std::string body = answer.substr(sizeof(AnswerHeader));
  for (size_t size = 0; size < body.size(); ++size) EXPECT_FALSE(ParseAnswerBody(2, body.substr(0, size))) << size;
  EXPECT_FALSE(ParseAnswerBody(2, body + "x"));
  EXPECT_FALSE(ParseAnswerBody(1, body));
  EXPECT_FALSE(ParseAnswerBody(3, body));
  EXPECT_FALSE(ParseAnswerBody(UINT32_MAX, body));
}

TEST(WorkerProtocol, AnyBytesAreParsedOrRefused) {
  std::minstd_rand random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string body(random() % 64, '\0');
    for (char& byte : body) byte = random() % 4 == 0 ? static_cast<char>(random()) : '\0';
    ParseAnswerBody(random() % 4, body);
  }
}

TEST(WorkerProtocol, FramesBeyondTheLimitsAreLeftOutInnermostFirst) {
  SourceLocation location;
  for (uint32_t i = 0; i < kMaxAnswerFrames + 10; ++i) location.frames.push_back({"f" + std::to_string(i), "", 0, true});
  std::string answer;
  AppendAnswer(0, SymbolQuality::kDwarf, location, &answer);
  auto parsed = ParseAnswerBody(HeaderOf(answer).frame_count, std::string_view(answer).substr(sizeof(AnswerHeader)));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->frames.size(), kMaxAnswerFrames);
  EXPECT_EQ(parsed->frames.back().function, location.frames.back().function);
}

}  // namespace
}  // namespace stackd

#include "daemon/serve/net/frame_guard.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr uint8_t kEndStream = 0x1, kEndHeaders = 0x4, kAcknowledged = 0x1;
const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(FrameType type, uint8_t flags, size_t payload_bytes, uint32_t stream = 1) {
  std::string frame = {static_cast<char>(payload_bytes >> 16), static_cast<char>(payload_bytes >> 8),
                       static_cast<char>(payload_bytes)};
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>(stream >> shift);
  return frame + std::string(payload_bytes, '\x01');
}

class FrameGuardTest : public testing::Test {
 protected:
  FrameGuardTest() {
    EXPECT_EQ(Look(kPreface + Frame(FrameType::kSettings, 0, 18) + Frame(FrameType::kSettings, kAcknowledged, 0)), "");
  }

  // "" if there is nothing to say against it.
  std::string Look(const std::string& bytes) {
    const char* why = guard_.Look(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), now_ns_);
    return why == nullptr ? "" : why;
  }

  void Answer(const std::string& bytes) {
    guard_.LookAtAnswers(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }

  // The next one, and how the client and gRPC end it.
  std::string Call() {
    stream_ += 2;
    return Frame(FrameType::kHeaders, kEndHeaders, 120, stream_) + Frame(FrameType::kData, kEndStream, 17, stream_);
  }
  std::string Reset(uint32_t stream) { return Frame(FrameType::kRstStream, 0, 4, stream); }
  std::string End() { return Frame(FrameType::kHeaders, kEndHeaders | kEndStream, 20, stream_); }

  // How many of them it takes at one moment.
  int Takes(const std::function<std::string()>& next) {
    for (int taken = 0; taken < 100'000; ++taken) {
      if (!Look(next()).empty()) return taken;
    }
    return 100'000;
  }

  FrameGuard guard_;
  uint32_t stream_ = 1;
  int64_t now_ns_ = kNsPerSecond;
};

TEST_F(FrameGuardTest, ACallerAtTheRateOfItsLimitsIsNotDisturbed) {
  for (int second = 0; second < 60; ++second) {
    for (int call = 0; call < 500; ++call) {
      ASSERT_EQ(Look(Call() + Frame(FrameType::kPing, 0, 8) + Frame(FrameType::kWindowUpdate, 0, 4)), "");
      Answer(End());
    }
    now_ns_ += kNsPerSecond;
  }
  EXPECT_EQ(guard_.calls(), 60 * 500);
}

TEST_F(FrameGuardTest, AllCallsOfAConnectionMayBeResetAtOnce) {
  for (int call = 0; call < 128; ++call) ASSERT_EQ(Look(Call()), "");
  for (uint32_t stream = 3; stream <= stream_; stream += 2) ASSERT_EQ(Look(Reset(stream)), "");
}

TEST_F(FrameGuardTest, CallsThatAreResetAtOnceEndTheConnection) {
  EXPECT_LE(Takes([&] { return Call() + Reset(stream_); }), 500);
}

TEST_F(FrameGuardTest, CallsThatAreOpenAreFew) {
  for (size_t call = 0; call < FrameGuard::kMaxOpenCalls; ++call) ASSERT_EQ(Look(Call()), "") << call;
  EXPECT_EQ(Look(Call()), "it has too many calls at a time");
}

TEST_F(FrameGuardTest, CallsThatAreAnsweredAreNotOpen) {
  for (int call = 0; call < 2'000; ++call) {
    ASSERT_EQ(Look(Call()), "") << call;
    // As gRPC ends a call that failed, and one that did not.
    if (call % 2 == 0)
      Answer(Frame(FrameType::kHeaders, kEndHeaders, 20, stream_) + Frame(FrameType::kData, 0, 100, stream_));
    Answer(End());
  }
}

TEST_F(FrameGuardTest, FloodsOfSmallFramesEndTheConnection) {
  for (const FrameType type : {FrameType::kData, FrameType::kPriority, FrameType::kSettings, FrameType::kPing,
                               FrameType::kGoAway, FrameType::kWindowUpdate, FrameType::kUnknown}) {
    guard_ = FrameGuard();
    ASSERT_EQ(Look(kPreface), "");
    EXPECT_LE(Takes([type] { return Frame(type, 0, 0); }), 20'000) << static_cast<int>(type);
  }
}

TEST_F(FrameGuardTest, HeadersWithoutEndEndTheConnection) {
  EXPECT_EQ(Look(Frame(FrameType::kHeaders, 0, 100)), "");
  EXPECT_LE(Takes([] { return Frame(FrameType::kContinuation, 0, 1); }), FrameGuard::kMaxContinuations);
}

TEST_F(FrameGuardTest, HeadersMayBeInPiecesAndNotTooLong) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Look(Frame(FrameType::kHeaders, 0, 8'000) + Frame(FrameType::kContinuation, kEndHeaders, 8'000)), "");
  }
  EXPECT_EQ(Look(Frame(FrameType::kHeaders, 0, 10'000)), "");
  EXPECT_EQ(Look(Frame(FrameType::kContinuation, kEndHeaders, 10'000)), "it sends headers that are too long");
}

TEST_F(FrameGuardTest, FramesWithinHeadersEndTheConnection) {
  EXPECT_EQ(Look(Frame(FrameType::kHeaders, 0, 10)), "");
  EXPECT_EQ(Look(Frame(FrameType::kPing, 0, 8)), "its frames are in no order");
}

TEST_F(FrameGuardTest, ItDoesNotMatterHowBytesAreCut) {
  std::string all;
  for (int i = 0; i < 50; ++i) all += Call() + Frame(FrameType::kWindowUpdate, 0, 4);
  for (const char byte : all) ASSERT_EQ(Look({byte}), "");
  EXPECT_EQ(guard_.calls(), 50);
}

TEST_F(FrameGuardTest, WhatIsNoHttp2EndsTheConnection) {
  guard_ = FrameGuard();
  EXPECT_EQ(Look("PRI * HT"), "");
  EXPECT_EQ(Look("TP/1.1\r\n"), "it does not speak HTTP/2");
}

}  // namespace
}  // namespace stackd

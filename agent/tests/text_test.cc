// Text without the C library, compared with what that library makes of the same.
extern "C" {
#include "agent/sys/text.h"
}

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

namespace {

std::string Put(uint64_t number, unsigned base) {
  char buffer[80];
  stackd_text text = stackd_text_in(buffer, sizeof(buffer));
  stackd_put_number(&text, number, base);
  return buffer;
}

TEST(TextTest, NumbersAreAsPrintfWritesThem) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; i++) {
    const uint64_t number = random() >> random() % 64;
    char decimal[32], hex[32];
    snprintf(decimal, sizeof(decimal), "%" PRIu64, number);
    snprintf(hex, sizeof(hex), "%" PRIx64, number);
    EXPECT_EQ(Put(number, 10), decimal);
    EXPECT_EQ(Put(number, 16), hex);
  }
  EXPECT_EQ(Put(0, 10), "0");
}

TEST(TextTest, WhatDoesNotFitIsCut) {
  char buffer[6];
  memset(buffer, 'x', sizeof(buffer));
  stackd_text text = stackd_text_in(buffer, sizeof(buffer) - 1);
  stackd_put(&text, "abc");
  stackd_put_number(&text, 987, 10);
  EXPECT_STREQ(buffer, "abc9");
  EXPECT_EQ(buffer[5], 'x');
}

TEST(TextTest, NumbersAreTakenWithWhatIsBeforeThemAndNothingBehind) {
  const char* at = "  123 0xfF;";
  EXPECT_EQ(stackd_take_number(&at, 10), 123u);
  EXPECT_EQ(stackd_take_number(&at, 16), 255u);
  EXPECT_STREQ(at, ";");
  for (const char* none : {"", "x", "-1", "99999999999999999999"}) {
    const char* unchanged = none;
    EXPECT_EQ(stackd_take_number(&unchanged, 10), 0u);
    EXPECT_EQ(unchanged, none);
  }
}

TEST(TextTest, AddressesAreAsInetNtopWritesThem) {
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; i++) {
    std::array<uint8_t, 16> bytes{};
    // Many zeros: what is left out between them is what differs.
    for (int group = 0; group < 8; group++) {
      if (random() % 3 != 0) continue;
      bytes[2 * group] = static_cast<uint8_t>(random() % 2 * random());
      bytes[2 * group + 1] = static_cast<uint8_t>(random());
    }
    if (i % 7 == 0) bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, bytes[15]};
    // The old form of an address of IPv4 in one of IPv6, which RFC 5952 leaves to the writer.
    if (std::all_of(bytes.begin(), bytes.begin() + 12, [](uint8_t byte) { return byte == 0; })) continue;
    char expected[INET6_ADDRSTRLEN], got[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, bytes.data(), expected, sizeof(expected));
    stackd_text text = stackd_text_in(got, sizeof(got));
    stackd_put_ipv6(&text, bytes.data());
    EXPECT_STREQ(got, expected);
    inet_ntop(AF_INET, bytes.data() + 12, expected, sizeof(expected));
    text = stackd_text_in(got, sizeof(got));
    stackd_put_ipv4(&text, bytes.data() + 12);
    EXPECT_STREQ(got, expected);
  }
}

}  // namespace

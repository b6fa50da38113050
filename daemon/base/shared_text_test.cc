#include "daemon/base/shared_text.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

constexpr char kName[] = "com.example.orders.OrderService.placeOrderOnceMore";

TEST(SharedText, CopiesAreTheSameText) {
  const SharedText text = kName;
  const SharedText copy = text;
  EXPECT_EQ(copy, kName);
  EXPECT_EQ(copy, text);
  EXPECT_EQ(copy.str().data(), text.str().data());
  EXPECT_EQ(copy.size(), sizeof(kName) - 1);
}

TEST(SharedText, TextsAreComparedByWhatTheySay) {
  EXPECT_EQ(SharedText("a"), SharedText(std::string("a")));
  EXPECT_FALSE(SharedText("a") == SharedText("b"));
  EXPECT_FALSE(SharedText("a") == SharedText());
}

TEST(SharedText, NoTextIsAnEmptyOne) {
  EXPECT_TRUE(SharedText().empty());
  EXPECT_TRUE(SharedText("").empty());
  EXPECT_EQ(SharedText(), "");
  EXPECT_EQ(SharedText(), SharedText(""));
  EXPECT_EQ(SharedText().SharedBytes(), 0u);
}

TEST(SharedText, CopiesDivideTheMemoryAmongThem) {
  const SharedText text = kName;
  const size_t whole = text.SharedBytes();
  EXPECT_GE(whole, sizeof(kName) - 1);
  const SharedText copy = text;
  EXPECT_EQ(text.SharedBytes() + copy.SharedBytes(), whole / 2 * 2);
}

}  // namespace
}  // namespace stackd

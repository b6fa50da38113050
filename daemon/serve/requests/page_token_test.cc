#include "daemon/serve/requests/page_token.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

const PagePlace kPlace{1'700'000'000'000'000'007, "7-100"};

TEST(PageToken, LeadsBackToItsPlace) {
  auto place = DecodePageToken(EncodePageToken(kPlace, "check"), "check");
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->connect_wall_ns, kPlace.connect_wall_ns);
  EXPECT_EQ(place->id, kPlace.id);
}

TEST(PageToken, IsRefusedForAnotherFilter) {
  EXPECT_EQ(DecodePageToken(EncodePageToken(kPlace, "a"), "b").error().reason, "BAD_PAGE_TOKEN");
}

TEST(PageToken, IsRefusedWhenAnyDigitOfItIsChanged) {
  const std::string token = EncodePageToken(kPlace, "");
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_FALSE(DecodePageToken(changed, "").has_value()) << i;
    EXPECT_FALSE(DecodePageToken(token.substr(0, i), "").has_value()) << i;
  }
}

TEST(PageToken, IsRefusedWhenItIsNonsense) {
  for (const std::string& token :
       {std::string("x"), std::string(16, '0'), std::string(40, '-'), std::string(1 << 20, 'a')}) {
    EXPECT_FALSE(DecodePageToken(token, "").has_value());
  }
}

TEST(PagePlace, OrdersNewestFirst) {
  EXPECT_TRUE((PagePlace{1, "b"}.ComesAfter({2, "a"})));
  EXPECT_TRUE((PagePlace{2, "a"}.ComesAfter({2, "b"})));
  EXPECT_FALSE((PagePlace{2, "a"}.ComesAfter({2, "a"})));
}

}  // namespace
}  // namespace stackd

#include "daemon/serve/web/browser_check.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

std::string Refuses(std::map<std::string, std::string, std::less<>> fields) {
  const BrowserCheck check{.hosts = {"stackd.ops.example"}};
  HttpRequest request;
  request.fields = std::move(fields);
  return check.Refuses(request);
}

TEST(BrowserCheckTest, LocalhostAndAddressesAreKnown) {
  for (const char* host : {"localhost", "localhost:7446", "127.0.0.1:7446", "[::1]:7446", "[::1]", "10.0.0.7:80",
                           "stackd.ops.example", "stackd.ops.example:443"}) {
    EXPECT_EQ(Refuses({{"host", host}}), "") << host;
  }
}

TEST(BrowserCheckTest, ANameThatIsNotKnownMayBeRebound) {
  for (const char* host : {"evil.example", "localhost.evil.example:7446", "127.0.0.1.evil.example", "", "[", "[::1",
                           "stackd.ops.example.evil.example"}) {
    EXPECT_NE(Refuses({{"host", host}}), "") << host;
  }
}

TEST(BrowserCheckTest, APageOfAnotherSiteIsRefused) {
  EXPECT_EQ(Refuses({{"host", "localhost:7446"}, {"origin", "http://localhost:7446"}}), "");
  EXPECT_EQ(Refuses({{"host", "10.0.0.7:7446"}, {"origin", "https://stackd.ops.example"}}), "") << "behind a proxy";
  for (const char* origin : {"http://evil.example", "http://localhost:8000", "null", "http://", "localhost:7446"}) {
    EXPECT_NE(Refuses({{"host", "localhost:7446"}, {"origin", origin}}), "") << origin;
  }
}

TEST(BrowserCheckTest, ABrowserThatTellsOfAnotherSiteIsRefused) {
  EXPECT_EQ(Refuses({{"host", "localhost"}, {"sec-fetch-site", "same-origin"}}), "");
  EXPECT_EQ(Refuses({{"host", "localhost"}, {"sec-fetch-site", "none"}}), "") << "typed by hand";
  EXPECT_NE(Refuses({{"host", "localhost"}, {"sec-fetch-site", "cross-site"}}), "");
  EXPECT_NE(Refuses({{"host", "localhost"}, {"sec-fetch-site", "same-site"}}), "");
}

TEST(BrowserCheckTest, ARefusalShowsNoControlCharacters) {
  const std::string why = Refuses({{"host", "evil\x1b[31m" + std::string(1000, 'x')}});
  EXPECT_EQ(why.find('\x1b'), std::string::npos);
  EXPECT_LT(why.size(), 300u);
}

}  // namespace
}  // namespace stackd

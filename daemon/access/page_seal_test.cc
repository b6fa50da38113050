#include "daemon/access/page_seal.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

TEST(PageSeal, OpensWhatItClosed) {
  const PageSeal seal;
  EXPECT_EQ(seal.Open("dns:a", "ListDumps", seal.Close("dns:a", "ListDumps", "token")).value_or(""), "token");
}

TEST(PageSeal, OpensForNobodyAndNothingElse) {
  const PageSeal seal, of_another_daemon;
  const std::string sealed = seal.Close("dns:a", "ListDumps", "token");
  EXPECT_EQ(seal.Open("dns:b", "ListDumps", sealed).error().reason, "BAD_PAGE_TOKEN");
  EXPECT_EQ(seal.Open("dns:a", "ListProcesses", sealed).error().reason, "BAD_PAGE_TOKEN");
  EXPECT_FALSE(of_another_daemon.Open("dns:a", "ListDumps", sealed).has_value());
  // Not even where the fields run into each other.
  EXPECT_FALSE(seal.Open("dns:aList", "Dumps", sealed).has_value());
}

TEST(PageSeal, OpensNothingThatWasChanged) {
  const PageSeal seal;
  const std::string sealed = seal.Close("dns:a", "ListDumps", "token");
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] ^= 1;
    EXPECT_FALSE(seal.Open("dns:a", "ListDumps", changed).has_value()) << i;
  }
  for (const std::string& other : {std::string(), std::string("x"), sealed.substr(0, 32), std::string(1 << 20, 'a')}) {
    EXPECT_FALSE(seal.Open("dns:a", "ListDumps", other).has_value());
  }
}

}  // namespace
}  // namespace stackd

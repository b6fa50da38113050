#include "daemon/fingerprint/recursion.h"

#include <gtest/gtest.h>

#include <string>

namespace stackd {
namespace {

// A stack of functions, innermost first, one letter each, and what each needs of the stack.
struct Letters {
  std::string functions;
  std::vector<XXH128_hash_t> keys;
  NativeStack native;

  explicit Letters(
      const std::string& letters, uint64_t (*frame_bytes)(char) = [](char) -> uint64_t { return 32; })
      : functions(letters) {
    native.end = StackEnd::kRoot;
    uint64_t avma = 0x1000;
    for (char letter : letters) {
      keys.push_back({static_cast<uint64_t>(letter), 0});
      native.frames.push_back({.pc_avma = 1, .cfa_avma = avma += frame_bytes(letter), .origin = FrameOrigin::kCfi});
    }
  }

  // Without the frames [begin, end), which were not copied.
  Letters Without(size_t begin, size_t end) const {
    Letters rest = *this;
    rest.functions.erase(begin, end - begin);
    rest.keys.erase(rest.keys.begin() + begin, rest.keys.begin() + end);
    rest.native.frames.erase(rest.native.frames.begin() + begin, rest.native.frames.begin() + end);
    rest.native.omitted_before = begin;
    rest.native.omitted_bytes = native.frames[end].cfa_avma - native.frames[begin].cfa_avma;
    // Its caller's return address was not copied.
    rest.native.frames[begin - 1].cfa_avma = 0;
    return rest;
  }

  // "x(ab)^9 m": what is folded stands in parentheses.
  std::string Folded() const {
    std::string text;
    size_t next = 0;
    for (const Recursion& recursion : FindRecursion(keys, native)) {
      text += functions.substr(next, recursion.begin - next) + "(" + functions.substr(recursion.begin, recursion.period) +
              ")^" + std::to_string(recursion.turns);
      next = recursion.end;
    }
    return text + functions.substr(next);
  }
};

std::string Repeated(const std::string& turn, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += turn;
  return text;
}

TEST(FindRecursion, FindsTheShortestTurn) {
  EXPECT_EQ(Letters("x" + Repeated("f", 100) + "m").Folded(), "x(f)^100m");
  EXPECT_EQ(Letters(Repeated("fg", 50) + "m").Folded(), "(fg)^50m");
  EXPECT_EQ(Letters(Repeated("abcdefgh", 8)).Folded(), "(abcdefgh)^8");
  EXPECT_EQ(Letters(Repeated("f", 10) + Repeated("gh", 9) + "m").Folded(), "(f)^10(gh)^9m");
}

TEST(FindRecursion, LeavesAPartOfATurnAsItIs) { EXPECT_EQ(Letters(Repeated("fg", 50) + "fm").Folded(), "(fg)^50fm"); }

TEST(FindRecursion, LeavesFewOrLongTurnsAsTheyAre) {
  for (const std::string& functions :
       {Repeated("f", 7), Repeated("fg", 7) + "f", Repeated("abcdefghi", 20), std::string()}) {
    EXPECT_EQ(Letters(functions).Folded(), functions);
  }
}

TEST(FindRecursion, CountsTheTurnsThatWereNotCopied) {
  const Letters whole("x" + Repeated("f", 50'000) + "m");
  EXPECT_EQ(whole.Without(100, 49'000).Folded(), "x(f)^50000m");
}

TEST(FindRecursion, CountsThemWhereverInATurnTheGapBegins) {
  const Letters whole("x" + Repeated("abc", 1000) + "m", [](char letter) -> uint64_t { return letter == 'b' ? 4096 : 48; });
  for (size_t begin = 100; begin < 106; ++begin) {
    for (size_t end = 2500; end < 2506; ++end)
      EXPECT_EQ(whole.Without(begin, end).Folded(), "x(abc)^1000m") << begin << end;
  }
}

TEST(FindRecursion, EndsAtTheGapWhereSomethingElseIsBehindIt) {
  Letters stack = Letters(Repeated("f", 100) + Repeated("g", 100) + "m").Without(50, 150);
  EXPECT_EQ(stack.Folded(), "(f)^50(g)^50m");
}

TEST(FindRecursion, DoesNotReckonWithDistancesThatCannotBe) {
  const Letters whole(Repeated("f", 1000) + "m");
  for (uint64_t cfa_avma : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63}) {
    Letters stack = whole.Without(100, 900);
    stack.native.frames.end()[-2].cfa_avma = cfa_avma;
    EXPECT_TRUE(stack.Folded().starts_with("(f)^100(f)^100m")) << stack.Folded();
  }
}

}  // namespace
}  // namespace stackd

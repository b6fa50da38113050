#include "daemon/managed/go/go_references.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace stackd {
namespace {

using Kind = GoReference::Kind;

constexpr uint64_t kCode = 0x1000;

// What becomes of the address that `lea 0x100(%rip), %rcx` takes, by the bytes that follow.
Kind KindBefore(const std::vector<uint8_t>& next) {
  std::vector<uint8_t> code = {0x48, 0x8d, 0x0d, 0x00, 0x01, 0x00, 0x00};
  code.insert(code.end(), next.begin(), next.end());
  const std::vector<GoReference> references = GoReferencesOf(code, kCode);
  EXPECT_EQ(references.size(), 1u);
  EXPECT_EQ(references[0].svma, kCode + 7 + 0x100);
  return references[0].kind;
}

// As go1.22 and go1.26 compile closures: on the stack, deferred, on the heap, and as an argument.
TEST(GoReferences, TellWhetherAClosureOutlivesItsFunction) {
  EXPECT_EQ(KindBefore({0x48, 0x89, 0x4c, 0x24, 0x18, 0x90}), Kind::kStack);
  EXPECT_EQ(KindBefore({0x48, 0x89, 0x8c, 0x24, 0x00, 0x01, 0x00, 0x00}), Kind::kStack);
  EXPECT_EQ(KindBefore({0x48, 0x89, 0x4c, 0x24, 0x10, 0xc6, 0x44, 0x24, 0x0f, 0x01}), Kind::kDefer);
  EXPECT_EQ(KindBefore({0x48, 0x89, 0x08, 0x90, 0x90}), Kind::kAddress);        // mov %rcx, (%rax)
  EXPECT_EQ(KindBefore({0x48, 0x89, 0x44, 0x24, 0x18}), Kind::kAddress);        // mov %rax, 0x18(%rsp)
  EXPECT_EQ(KindBefore({0x4c, 0x89, 0x4c, 0x24, 0x18}), Kind::kAddress);        // mov %r9, 0x18(%rsp)
  EXPECT_EQ(KindBefore({0x48, 0x89, 0x8c, 0x24, 0x00, 0x01}), Kind::kAddress);  // cut short
  EXPECT_EQ(KindBefore({}), Kind::kAddress);
}

TEST(GoReferences, FindCallsInTheirOrder) {
  const std::vector<uint8_t> code = {0xe8, 0x10, 0, 0, 0, 0x90, 0xe9, 0xf0, 0xff, 0xff, 0xff, 0xe8, 0, 0};
  const std::vector<GoReference> references = GoReferencesOf(code, kCode);
  ASSERT_EQ(references.size(), 2u);
  EXPECT_EQ(references[0].svma, kCode + 5 + 0x10);
  EXPECT_EQ(references[1].svma, kCode + 11 - 0x10);
  EXPECT_EQ(references[1].end, 11u);
}

TEST(GoReferences, FindCallsOfTheFirstTwoMethodsOfAnInterface) {
  // mov disp8(%rdx), %rcx; call *%rcx
  const auto calls = [](uint8_t displacement) {
    return GoInterfaceCallsOf(std::vector<uint8_t>{0x48, 0x8b, 0x4a, displacement, 0xff, 0xd1});
  };
  EXPECT_TRUE(calls(0x18).first);
  EXPECT_FALSE(calls(0x18).second);
  EXPECT_TRUE(calls(0x20).second);
  EXPECT_FALSE(calls(0x28).first || calls(0x28).second);
  // A load that nothing is called after.
  const GoInterfaceCalls none = GoInterfaceCallsOf(std::vector<uint8_t>{0x48, 0x8b, 0x4a, 0x18, 0x90, 0x90});
  EXPECT_FALSE(none.first || none.second);
}

}  // namespace
}  // namespace stackd

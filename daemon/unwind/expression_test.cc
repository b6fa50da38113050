#include "daemon/unwind/expression.h"

#include <gtest/gtest.h>

#include <vector>

namespace stackd {
namespace {

using Bytes = std::vector<uint8_t>;

Evaluation Evaluate(const Bytes& expression, std::optional<uint64_t> initial = std::nullopt, uint64_t steps = 1000) {
  RegisterFile registers;
  registers.Set(7, 0x1000);
  registers.Set(16, 0x40000b);
  StackCopy stack(0x1000, 2, {3}, {0x1122334455667788, 0xfffffffffffffff0});
  return EvaluateExpression(expression, registers, stack, initial, &steps);
}

TEST(Expression, ComputesWithSignedAndUnsignedNumbers) {
  EXPECT_EQ(Evaluate({0x08, 0xff}), 255u);
  EXPECT_EQ(Evaluate({0x09, 0xff}), ~uint64_t{0});
  EXPECT_EQ(Evaluate({0x0b, 0xfe, 0xff}), ~uint64_t{1});
  EXPECT_EQ(Evaluate({0x0d, 0xfe, 0xff, 0xff, 0xff}), ~uint64_t{1});
  EXPECT_EQ(Evaluate({0x10, 0xe5, 0x8e, 0x26}), 624485u);
  EXPECT_EQ(Evaluate({0x11, 0x7f}), ~uint64_t{0});
  EXPECT_EQ(Evaluate({0x37, 0x33, 0x1c}), 4u);                                       // 7 - 3
  EXPECT_EQ(Evaluate({0x09, 0xf9, 0x32, 0x1b}), static_cast<uint64_t>(-3));          // -7 / 2
  EXPECT_EQ(Evaluate({0x31, 0x08, 63, 0x24, 0x09, 0xff, 0x1b}), uint64_t{1} << 63);  // smallest / -1
  EXPECT_EQ(Evaluate({0x37, 0x34, 0x1d}), 3u);                                       // 7 mod 4
  EXPECT_EQ(Evaluate({0x09, 0x80, 0x33, 0x26}), static_cast<uint64_t>(-16));         // -128 >> 3
  EXPECT_EQ(Evaluate({0x31, 0x08, 64, 0x24}), 0u);                                   // a shift by the width
  EXPECT_EQ(Evaluate({0x09, 0xff, 0x31, 0x2d}), 1u);                                 // -1 < 1
  EXPECT_EQ(Evaluate({0x32, 0x1f, 0x19}), 2u);                                       // abs(-2)
}

TEST(Expression, MovesValuesOnItsStack) {
  EXPECT_EQ(Evaluate({0x31, 0x32, 0x16, 0x1c}), 1u);                               // swap: 2 - 1
  EXPECT_EQ(Evaluate({0x35, 0x31, 0x14, 0x22}), 6u);                               // over: 1 + 5
  EXPECT_EQ(Evaluate({0x31, 0x32, 0x33, 0x17, 0x1c}), static_cast<uint64_t>(-1));  // rot gives 3 1 2
  EXPECT_EQ(Evaluate({0x34, 0x31, 0x32, 0x15, 2}), 4u);
  EXPECT_EQ(Evaluate({0x23, 0x10}, 0x100), 0x110u);
}

TEST(Expression, ReadsRegistersAndTheStack) {
  EXPECT_EQ(Evaluate({0x77, 0x08}), 0x1008u);
  EXPECT_EQ(Evaluate({0x92, 0x07, 0x78}), 0xff8u);
  EXPECT_EQ(Evaluate({0x77, 0x00, 0x06}), 0x1122334455667788u);
  EXPECT_EQ(Evaluate({0x77, 0x04, 0x94, 0x04}), 0x11223344u);
  EXPECT_EQ(Evaluate({0x77, 0x01, 0x94, 0x01}), 0x77u);
}

TEST(Expression, FollowsThePltRule) {
  const Bytes plt = {0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};
  EXPECT_EQ(Evaluate(plt), 0x1010u);
}

TEST(Expression, Branches) {
  EXPECT_EQ(Evaluate({0x31, 0x28, 0x01, 0x00, 0x30, 0x35}), 5u);
  EXPECT_EQ(Evaluate({0x35, 0x30, 0x28, 0x01, 0x00, 0x36}), 6u);
  EXPECT_EQ(Evaluate({0x35, 0x2f, 0x01, 0x00, 0x36}), 5u);
}

TEST(Expression, SaysWhyItFails) {
  auto failure = [](const Bytes& expression) { return Evaluate(expression).error().kind; };
  EXPECT_EQ(failure({}), EvaluationError::kMalformed);
  EXPECT_EQ(failure({0x22}), EvaluationError::kMalformed);
  EXPECT_EQ(failure({0x08}), EvaluationError::kMalformed);
  EXPECT_EQ(failure({0x31, 0x30, 0x1b}), EvaluationError::kMalformed);  // division by zero
  EXPECT_EQ(failure({0x31, 0x30, 0x1d}), EvaluationError::kMalformed);
  EXPECT_EQ(failure({0x31, 0x32, 0xe0}), EvaluationError::kMalformed);  // no such operation
  EXPECT_EQ(failure({0x2f, 0xf0, 0x7f}), EvaluationError::kMalformed);  // a branch out of it
  EXPECT_EQ(failure({0x2f, 0x00, 0x80}), EvaluationError::kMalformed);
  EXPECT_EQ(failure({0x77, 0x01, 0x06}), EvaluationError::kMalformed);  // not within one word
  EXPECT_EQ(failure({0x77, 0x00, 0x94, 0x00}), EvaluationError::kMalformed);
  EXPECT_EQ(failure({0x76, 0x00}), EvaluationError::kUnknownRegister);
  EXPECT_EQ(failure({0x92, 0xff, 0x7f, 0x00}), EvaluationError::kUnknownRegister);
  EXPECT_EQ(failure({0x77, 0x10, 0x06}), EvaluationError::kUnreadable);
  EXPECT_EQ(Evaluate({0x77, 0x10, 0x06}).error().address_avma, 0x1010u);
}

TEST(Expression, EndsEvenIfItLoopsOrPushesForEver) {
  uint64_t steps_left = 100;
  EXPECT_FALSE(EvaluateExpression(Bytes{0x2f, 0xfd, 0xff}, {}, {}, std::nullopt, &steps_left));
  EXPECT_EQ(steps_left, 0u);
  EXPECT_FALSE(Evaluate({0x31, 0x2f, 0xfc, 0xff}));
  EXPECT_FALSE(Evaluate(Bytes(1000, 0x31)));
}

}  // namespace
}  // namespace stackd

#include "daemon/serve/requests/comparison_view.h"

#include <gtest/gtest.h>

#include <string>

namespace stackd {
namespace {

v1::DumpComparison ComparisonOf(int threads) {
  v1::DumpComparison comparison;
  comparison.set_verdict(v1::DumpComparison::STUCK);
  comparison.add_findings()->set_explanation("a finding");
  comparison.add_lines("a line");
  for (int i = 0; i < threads; ++i) {
    v1::DumpComparison::ThreadComparison* thread = comparison.add_threads();
    thread->set_tid(i + 1);
    thread->set_explanation(std::string(1000, 'a'));
  }
  return comparison;
}

TEST(ComparisonView, IsWholeWhereItFits) {
  const v1::DumpComparison comparison = ComparisonOf(100);
  EXPECT_EQ(FittingAnswer(comparison).SerializeAsString(), comparison.SerializeAsString());
}

TEST(ComparisonView, CountsTheThreadsThatItLeavesOut) {
  const v1::DumpComparison answer = FittingAnswer(ComparisonOf(10'000));
  EXPECT_LT(answer.ByteSizeLong(), 4u << 20);
  EXPECT_GT(answer.ByteSizeLong(), 3u << 20);
  EXPECT_EQ(answer.threads(0).tid(), 1) << "those of most concern come first";
  EXPECT_EQ(answer.threads_size() + answer.omitted_thread_count(), 10'000);
  EXPECT_EQ(answer.lines_size(), 1);
}

TEST(ComparisonView, SaysThatFindingsOrLinesAreMissing) {
  v1::DumpComparison comparison = ComparisonOf(1);
  for (int i = 0; i < 100; ++i) comparison.add_lines(std::string(1000, 'b'));
  const v1::DumpComparison answer = FittingAnswer(comparison, 32 << 10);
  EXPECT_LT(answer.ByteSizeLong(), 32u << 10);
  EXPECT_EQ(answer.lines(answer.lines_size() - 1), "0 findings and " + std::to_string(101 - (answer.lines_size() - 1)) +
                                                       " lines are left out to keep this answer below 4 MiB");
  EXPECT_EQ(answer.omitted_thread_count(), 1);
}

}  // namespace
}  // namespace stackd

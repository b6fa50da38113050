#include "daemon/metrics/exposition.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

TEST(ExpositionTest, AFamilyHasHelpTypeAndSamples) {
  Exposition out;
  out.Family("counter", "x_total", "What x is.");
  out.Sample({{"reason", "late"}, {"kind", "a"}}, int64_t{7});
  out.Gauge("y", "What y is.", -3);
  EXPECT_EQ(out.Take(),
            "# HELP x_total What x is.\n# TYPE x_total counter\nx_total{reason=\"late\",kind=\"a\"} 7\n"
            "# HELP y What y is.\n# TYPE y gauge\ny -3\n");
}

TEST(ExpositionTest, ValuesOfLabelsAreEscaped) {
  Exposition out;
  out.Family("gauge", "y", "Y.");
  out.Sample({{"a", "q\"b\\n\n\xff"}}, 0.25);
  EXPECT_TRUE(out.Take().ends_with("y{a=\"q\\\"b\\\\n\\n?\"} 0.25\n"));
}

TEST(ExpositionTest, BucketsOfAHistogramAreCumulative) {
  DurationHistogram histogram;
  histogram.Observe(100'000);
  histogram.Observe(100'001);
  histogram.Observe(60'000'000'000);
  Exposition out;
  out.Family("histogram", "t_seconds", "T.");
  out.Sample({{"m", "x"}}, histogram);
  const std::string text = out.Take();
  const auto has = [&](const std::string& line) { return text.find("\n" + line + "\n") != std::string::npos; };
  EXPECT_TRUE(has("t_seconds_bucket{m=\"x\",le=\"1e-04\"} 1")) << text;
  EXPECT_TRUE(has("t_seconds_bucket{m=\"x\",le=\"0.00025\"} 2")) << text;
  EXPECT_TRUE(has("t_seconds_bucket{m=\"x\",le=\"10\"} 2")) << text;
  EXPECT_TRUE(has("t_seconds_bucket{m=\"x\",le=\"+Inf\"} 3")) << text;
  EXPECT_TRUE(has("t_seconds_sum{m=\"x\"} 60.000200001")) << text;
  EXPECT_TRUE(has("t_seconds_count{m=\"x\"} 3")) << text;
}

}  // namespace
}  // namespace stackd

#include "client/commands/doctor_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

namespace stackd {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::vector<std::string> BadOnes(const std::vector<Finding>& findings) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings) {
    if (finding.grade == Finding::kBad) texts.push_back(finding.text + " -> " + finding.way_out);
  }
  return texts;
}

TEST(DoctorChecks, SaysWhatIsMissingInTheFolder) {
  char dir[] = "/tmp/stackd_doctor_XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  auto bad = BadOnes(CheckDir(dir));
  rmdir(dir);
  EXPECT_THAT(bad, Contains(HasSubstr("stackd.sock (for agents): No such file")));
  EXPECT_THAT(bad, Contains(HasSubstr("stackd --dir " + std::string(dir))));
  EXPECT_THAT(BadOnes(CheckDir("/nonexistent")), Contains(HasSubstr("start stackd")));
}

}  // namespace
}  // namespace stackd

#include "daemon/access/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/base/clock.h"
#include "daemon/log/log.h"

namespace stackd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kStartNs = 1000 * kNsPerSecond;

std::string Written(const std::function<void(Audit*)>& calls) {
  testing::internal::CaptureStderr();
  StartLog(LogFormat::kJson, LogLevel::kInfo);
  Audit audit;
  calls(&audit);
  return testing::internal::GetCapturedStderr();
}

AuditedCall Refused(const std::string& caller) {
  return {.caller = caller, .role = Role::kRead, .status = "RESOURCE_EXHAUSTED", .reason = "CALL_RATE_LIMITED"};
}

TEST(Audit, SaysWhoDidWhat) {
  const std::string line = Written([](Audit* audit) {
    audit->Write({.caller = "uid:0",
                  .role = Role::kAdmin,
                  .method = "CreateDump",
                  .resource = "processes/7-123",
                  .status = "OK",
                  .duration_ns = 12 * kNsPerMs},
                 kStartNs);
  });
  EXPECT_THAT(line,
              HasSubstr("\"level\":\"info\",\"msg\":\"call\",\"caller\":\"uid:0\",\"role\":\"admin\","
                        "\"method\":\"CreateDump\",\"resource\":\"processes/7-123\",\"status\":\"OK\",\"reason\":\"\","
                        "\"ms\":12,\"count\":1}"));
}

TEST(Audit, WarnsOfRefusals) {
  const std::string line = Written([](Audit* audit) {
    audit->Write({.caller = "dns:a", .status = "PERMISSION_DENIED", .reason = "ROLE_MISSING"}, kStartNs);
    audit->Write({.caller = "dns:b", .status = "INVALID_ARGUMENT", .reason = "BAD_PAGE_TOKEN"}, kStartNs);
  });
  EXPECT_THAT(line, Not(HasSubstr("\"level\":\"info\"")));
}

TEST(Audit, OfAFloodIsALineASecondThatCountsTheRest) {
  const std::string lines = Written([](Audit* audit) {
    for (int i = 0; i < 1000; ++i) audit->Write(Refused("dns:a"), kStartNs + i);
    audit->Write(Refused("dns:b"), kStartNs);
    audit->Write(Refused("dns:a"), kStartNs + kNsPerSecond);
  });
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  EXPECT_THAT(lines, HasSubstr("\"count\":1000}"));
}

TEST(Audit, OfRefusalsForAMissingRoleIsALineASecondOfEachMethod) {
  const std::string lines = Written([](Audit* audit) {
    for (int i = 0; i < 1000; ++i) {
      for (const char* method : {"DeleteDump", "ExportDump"}) {
        audit->Write({.caller = "loopback", .method = method, .status = "PERMISSION_DENIED", .reason = "ROLE_MISSING"},
                     kStartNs + i);
      }
    }
  });
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2) << lines;
}

TEST(Audit, TellsTheEndOfAFloodASecondLater) {
  const std::string lines = Written([](Audit* audit) {
    for (int i = 0; i < 7000; ++i) audit->Write(Refused("dns:a"), kStartNs + i);
    audit->WriteRest(kStartNs + kNsPerSecond / 2);
    audit->WriteRest(kStartNs + kNsPerSecond);
    audit->WriteRest(kStartNs + 2 * kNsPerSecond);
    audit->WriteRest(kStartNs + 3 * kNsPerSecond);
  });
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2) << lines;
  EXPECT_THAT(lines, AllOf(HasSubstr("\"count\":1}"), HasSubstr("\"count\":6999}")));
}

TEST(Audit, TellsWhatIsLeftWhenItEnds) {
  testing::internal::CaptureStderr();
  StartLog(LogFormat::kJson, LogLevel::kInfo);
  {
    Audit audit;
    for (int i = 0; i < 10; ++i) audit.Write(Refused("dns:a"), kStartNs + i);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("\"count\":9}"));
}

TEST(Audit, TellsFloodsOfVeryManyCallersAsOne) {
  const std::string lines = Written([](Audit* audit) {
    for (int i = 0; i < 10'000; ++i) audit->Write(Refused("uid:" + std::to_string(i)), kStartNs + i);
    audit->WriteRest(kStartNs + 2 * kNsPerSecond);
  });
  EXPECT_LT(std::count(lines.begin(), lines.end(), '\n'), 300) << lines;
  EXPECT_THAT(lines, HasSubstr("\"caller\":\"others\""));
  EXPECT_THAT(lines, HasSubstr("\"count\":9743}"));
}

TEST(Audit, CutsAndEscapesWhatACallerCalledThings) {
  const std::string line = Written([](Audit* audit) {
    audit->Write({.caller = "dns:a", .method = "GetDump", .resource = "x\n\"" + std::string(100'000, 'y'), .status = "OK"},
                 kStartNs);
  });
  EXPECT_LT(line.size(), 1000u);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

}  // namespace
}  // namespace stackd

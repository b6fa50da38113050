#include "daemon/access/access_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uid_t kOwn = 65532;

AccessRules Rules(const std::string& text) {
  auto access = ParseAccess(text, "a.yaml");
  EXPECT_TRUE(access.has_value()) << access.error()[0];
  return access.value_or(AccessRules());
}

std::vector<std::string> FaultsOf(const std::string& text) {
  auto access = ParseAccess(text, "a.yaml");
  return access ? std::vector<std::string>() : access.error();
}

Peer User(uid_t uid) { return {.unix_peer = UnixPeer{.uid = uid}}; }
Peer UserElsewhere(uid_t uid) { return {.unix_peer = UnixPeer{.uid = uid, .is_elsewhere = true}}; }
Peer Loopback() { return {.is_loopback = true}; }
Peer Certificate(std::vector<std::string> uris, std::vector<std::string> dns_names = {}) {
  return {.has_certificate = true, .uris = std::move(uris), .dns_names = std::move(dns_names)};
}

TEST(AccessRules, WithoutAFileAdmitOwnUserAndRootAndLetLoopbackDump) {
  const AccessRules access;
  EXPECT_EQ(access.For(User(kOwn), kOwn).role, Role::kAdmin);
  EXPECT_EQ(access.For(User(0), kOwn).role, Role::kAdmin);
  EXPECT_EQ(access.For(User(1000), kOwn).role, Role::kNone);
  EXPECT_EQ(access.For(Loopback(), kOwn).role, Role::kDump);
  EXPECT_EQ(access.For(Certificate({"spiffe://a"}), kOwn).role, Role::kNone);
  EXPECT_FALSE(access.NamesOtherUids(kOwn));
}

TEST(AccessRules, GiveRootOfAnotherContainerNothingUnlessTheyNameIt) {
  for (const uid_t uid : {uid_t{0}, kOwn}) {
    const Grant grant = AccessRules().For(UserElsewhere(uid), kOwn);
    EXPECT_EQ(grant.role, Role::kNone);
    EXPECT_EQ(grant.caller, "uid:" + std::to_string(uid) + " in another container");
  }
  const AccessRules access = Rules("access: [{uid: 0, role: read}, {uid: 1000, role: dump}]");
  EXPECT_EQ(access.For(UserElsewhere(0), kOwn).role, Role::kRead);
  EXPECT_EQ(access.For(UserElsewhere(1000), kOwn).role, Role::kDump);
  EXPECT_EQ(access.For(UserElsewhere(kOwn), kOwn).role, Role::kNone);
}

TEST(AccessRules, GiveWhoeverProvesNothingNothing) {
  const Grant grant = Rules("loopback: admin").For(Peer(), kOwn);
  EXPECT_EQ(grant.role, Role::kNone);
  EXPECT_EQ(grant.caller, "unknown");
}

TEST(AccessRules, FitTheWholeNameOrItsBeginning) {
  const AccessRules access = Rules(
      "access:\n"
      "  - {uri: \"spiffe://test/ops/*\", role: dump}\n"
      "  - {uri: spiffe://test/root, role: admin}\n"
      "  - {dns: board.test, role: read}\n");
  EXPECT_EQ(access.For(Certificate({"spiffe://test/ops/a"}), kOwn).role, Role::kDump);
  EXPECT_EQ(access.For(Certificate({"spiffe://test/ops"}), kOwn).role, Role::kNone);
  EXPECT_EQ(access.For(Certificate({"spiffe://test/root"}), kOwn).role, Role::kAdmin);
  EXPECT_EQ(access.For(Certificate({"spiffe://test/root/x"}), kOwn).role, Role::kNone);
  EXPECT_EQ(access.For(Certificate({}, {"board.test"}), kOwn).role, Role::kRead);
  EXPECT_EQ(access.For(Certificate({}, {"xboard.test"}), kOwn).role, Role::kNone);
}

TEST(AccessRules, TakeNoNameOfOneKindForOneOfAnother) {
  const AccessRules access = Rules("access: [{dns: a.test, role: admin}]");
  EXPECT_EQ(access.For(Certificate({"a.test"}), kOwn).role, Role::kNone);
  EXPECT_EQ(access.For(Certificate({}, {"a.test"}), kOwn).role, Role::kAdmin);
}

TEST(AccessRules, GiveTheLargestRoleThatFitsAndCallTheCallerByItsName) {
  const AccessRules access =
      Rules("access: [{dns: \"a*\", role: read}, {uri: \"u:*\", role: admin}, {dns: abc, role: dump}]");
  const Grant grant = access.For(Certificate({"u:1"}, {"abc"}), kOwn);
  EXPECT_EQ(grant.role, Role::kAdmin);
  EXPECT_EQ(grant.caller, "uri:u:1");
  EXPECT_EQ(access.For(Certificate({}, {"z"}), kOwn).caller, "dns:z");
  EXPECT_EQ(access.For(Certificate({}), kOwn).caller, "certificate without names");
}

TEST(AccessRules, MayTakeFromRootWhatItHasByDefault) {
  const AccessRules access = Rules("access: [{uid: 0, role: read}, {uid: 7, role: dump}]");
  EXPECT_EQ(access.For(User(0), kOwn).role, Role::kRead);
  EXPECT_EQ(access.For(User(7), kOwn).role, Role::kDump);
  EXPECT_TRUE(access.NamesOtherUids(kOwn));
  EXPECT_FALSE(Rules("access: [{uid: 0, role: read}]").NamesOtherUids(kOwn));
  EXPECT_FALSE(Rules("access: [{uid: 7, role: none}]").NamesOtherUids(kOwn));
}

TEST(AccessRules, HaveLimits) {
  const AccessRules access = Rules("limits: {calls_per_second: 5, captures_per_minute: 60}\nloopback: none");
  EXPECT_EQ(access.rates.calls_per_second, 5);
  EXPECT_EQ(access.rates.captures_per_minute, 60);
  EXPECT_EQ(access.loopback, Role::kNone);
}

TEST(AccessRules, AreRefusedWithTheirPlace) {
  EXPECT_THAT(FaultsOf(""), ElementsAre("a.yaml:1:1: the file is empty"));
  EXPECT_THAT(FaultsOf("access: [{uid: 1, role: reader}]"),
              ElementsAre("a.yaml:1:25: unknown role \"reader\" in role; did you mean \"read\"?"));
  EXPECT_THAT(FaultsOf("access: [{uid: 1}]"), ElementsAre(HasSubstr("the entry needs a role")));
  EXPECT_THAT(FaultsOf("access: [{role: read}]"), ElementsAre(HasSubstr("needs one of uid, uri and dns")));
  EXPECT_THAT(FaultsOf("access: [{uid: 1, dns: a, role: read}]"), ElementsAre(HasSubstr("needs one of uid, uri and dns")));
  EXPECT_THAT(FaultsOf("access: 7"), ElementsAre(HasSubstr("access must be a list")));
  EXPECT_THAT(FaultsOf("acess: []"), ElementsAre(HasSubstr("did you mean \"access\"?")));
  EXPECT_THAT(FaultsOf("loopback: []"), ElementsAre(HasSubstr("must be a text")));
  EXPECT_THAT(FaultsOf("limits: {calls_per_second: 0}"), ElementsAre(HasSubstr("a number from 1")));
  EXPECT_THAT(FaultsOf("access: [}"), ElementsAre(HasSubstr("this is no YAML")));
}

TEST(AccessRules, TakeNoUidThatIsNone) {
  for (const char* uid : {"-1", "root", "4294967295", "4294967296", "1.5", "[]"}) {
    EXPECT_THAT(FaultsOf("access: [{role: read, uid: " + std::string(uid) + "}]"),
                ElementsAre(HasSubstr("uid must be the number of a user")))
        << uid;
  }
}

TEST(AccessRules, TakeNoPatternThatFitsEverybody) {
  EXPECT_THAT(FaultsOf("access: [{dns: \"*\", role: read}]"), ElementsAre(HasSubstr("would be everybody")));
  EXPECT_THAT(FaultsOf("access: [{dns: \"*.test\", role: read}]"), ElementsAre(HasSubstr("at the end only")));
  EXPECT_THAT(FaultsOf("access: [{uri: \"a**\", role: read}]"), ElementsAre(HasSubstr("at the end only")));
}

}  // namespace
}  // namespace stackd

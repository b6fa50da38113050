#include "daemon/resource/locator.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "daemon/resource/container_image.h"
#include "daemon/resource/pod_info.h"
#include "daemon/resource/service.h"

namespace stackd {
namespace {

using std::string_literals::operator""s;

class LocatorTest : public testing::Test {
 protected:
  LocatorTest() {
    char path[] = "/tmp/stackd-place-XXXXXX";
    dir_ = mkdtemp(path);
  }
  ~LocatorTest() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& text) { std::ofstream(dir_ + "/" + name) << text; }

  Locator InPod() {
    return Locator({.hostname = "checkout-6d4cf56db6-x2x7k", .pod_info_dir = dir_, .variable = [this](const char* name) {
                      return variables_[name];
                    }});
  }

  std::string dir_;
  std::map<std::string, std::string> variables_{
      {"POD_NAME", "checkout-6d4cf56db6-x2x7k"}, {"POD_NAMESPACE", "shop"}, {"NODE_NAME", "node-1"}};
};

TEST_F(LocatorTest, AProcessWithTheHostNameOfTheDaemonsPodIsInIt) {
  const Attributes attributes = InPod().Locate("checkout-6d4cf56db6-x2x7k", "");
  EXPECT_EQ(attributes.Get(kPodName), "checkout-6d4cf56db6-x2x7k");
  EXPECT_EQ(attributes.Get(kNamespaceName), "shop");
  EXPECT_EQ(attributes.Get(kNodeName), "node-1");
}

TEST_F(LocatorTest, AProcessWithAnotherHostNameIsOnTheSameNodeAndNoMore) {
  const Attributes attributes = InPod().Locate("billing-0", "");
  EXPECT_EQ(attributes.values(), (Attributes::Map{{kNodeName, "node-1"}}));
}

TEST_F(LocatorTest, WhatAProcessSaysOfItselfWins) {
  const Attributes attributes = InPod().Locate(
      "billing-0", "POD_NAME=billing-0\0POD_NAMESPACE=money\0NODE_NAME=node-2\0STACKD_CONTAINER_NAME=app\0"s);
  EXPECT_EQ(attributes.Get(kPodName), "billing-0");
  EXPECT_EQ(attributes.Get(kNamespaceName), "money");
  EXPECT_EQ(attributes.Get(kNodeName), "node-2");
  EXPECT_EQ(attributes.Get(kServiceInstance), "money.billing-0.app");
}

TEST_F(LocatorTest, AProcessThatNamesAnotherPodGetsNothingOfTheDaemons) {
  Write("labels", "app.kubernetes.io/name=\"stackd\"\n");
  const Attributes attributes = InPod().Locate("checkout-6d4cf56db6-x2x7k", "POD_NAME=other\0"s);
  EXPECT_EQ(attributes.Get(kPodName), "other");
  EXPECT_FALSE(attributes.Has(kNamespaceName));
  EXPECT_EQ(attributes.Get(kServiceName), "other");
}

TEST_F(LocatorTest, OutsideOfKubernetesNothingIsKnown) {
  variables_.clear();
  EXPECT_TRUE(InPod().Locate("checkout-6d4cf56db6-x2x7k", "").values().empty());
}

TEST_F(LocatorTest, TheServiceIsNamedInTheOrderOfOpenTelemetry) {
  const std::string pod = "checkout-6d4cf56db6-x2x7k", container = "STACKD_CONTAINER_NAME=app\0"s;
  const auto name = [&](const std::string& variables) { return InPod().Locate(pod, variables).Get(kServiceName); };
  EXPECT_EQ(name(container), pod);
  Write("labels", "pod-template-hash=\"6d4cf56db6\"\n");
  EXPECT_EQ(name(container), "checkout");
  Write("labels", "pod-template-hash=\"6d4cf56db6\"\napp.kubernetes.io/name=\"shop-checkout\"\n");
  EXPECT_EQ(name(container), "shop-checkout");
  Write("labels", "app.kubernetes.io/name=\"shop-checkout\"\napp.kubernetes.io/instance=\"checkout-eu\"\n");
  EXPECT_EQ(name(container), "checkout-eu");
  Write("annotations", "resource.opentelemetry.io/service.name=\"paid\"\n");
  EXPECT_EQ(name(container), "paid");
  EXPECT_EQ(name(container + "OTEL_RESOURCE_ATTRIBUTES=service.name=said\0"s), "said");
  EXPECT_EQ(name("OTEL_RESOURCE_ATTRIBUTES=service.name=said\0OTEL_SERVICE_NAME=told\0"s), "told");
}

TEST_F(LocatorTest, OwnersOfPodsAreKnownByTheirLabels) {
  const auto owner = [&](const std::string& pod, const std::string& labels) {
    variables_["POD_NAME"] = pod;
    Write("labels", labels);
    return InPod().Locate("checkout-6d4cf56db6-x2x7k", "").Get(kServiceName);
  };
  EXPECT_EQ(owner("db-2", "controller-revision-hash=\"db-7\"\nstatefulset.kubernetes.io/pod-name=\"db-2\"\n"), "db");
  EXPECT_EQ(owner("agent-x7k2p", "controller-revision-hash=\"5d8\"\n"), "agent");
  EXPECT_EQ(owner("nightly-28391-abcde", "batch.kubernetes.io/job-name=\"nightly-28391\"\n"), "nightly-28391");
  EXPECT_EQ(owner("lonely", ""), "lonely");
}

TEST_F(LocatorTest, TheVersionIsThatOfTheLabelElseTheTagOfTheImage) {
  const std::string image = "STACKD_CONTAINER_IMAGE=registry.example:5000/shop/checkout:1.4@sha256:00ff\0"s;
  Attributes attributes = InPod().Locate("checkout-6d4cf56db6-x2x7k", image);
  EXPECT_EQ(attributes.Get(kImageName), "registry.example:5000/shop/checkout");
  EXPECT_EQ(attributes.Get(kImageTags), "1.4");
  EXPECT_EQ(attributes.Get(kImageDigests), "registry.example:5000/shop/checkout@sha256:00ff");
  EXPECT_EQ(attributes.Get(kServiceVersion), "1.4");
  Write("labels", "app.kubernetes.io/version=\"2.0\"\n");
  EXPECT_EQ(InPod().Locate("checkout-6d4cf56db6-x2x7k", image).Get(kServiceVersion), "2.0");
}

TEST_F(LocatorTest, OnlyTheVariablesThatArePartOfThePlaceAreTaken) {
  const Attributes attributes =
      Locator({.hostname = "", .variable = [](const char*) { return ""; }}).Locate("", "PASSWORD=secret\0HOME=/root\0"s);
  EXPECT_TRUE(attributes.values().empty());
}

TEST(AttributesTest, HostileValuesAreLeftOutOrMadePrintable) {
  Attributes attributes;
  attributes.Add("too.long", std::string(Attributes::kMaxValueBytes + 1, 'x'));
  attributes.Add("bad key", "x");
  attributes.Add("", "x");
  attributes.Add("empty", "");
  EXPECT_TRUE(attributes.values().empty());
  attributes.Add("a", "\x1b[31m\xff\n");
  EXPECT_EQ(attributes.Get("a"), "?[31m??");
  attributes.Add("a", "again");
  EXPECT_EQ(attributes.Get("a"), "?[31m??");
}

TEST(AttributesTest, TheirNumberAndSizeAreBounded) {
  Attributes many, large;
  for (int i = 0; i < 1000; ++i) {
    many.Add("key" + std::to_string(i), "x");
    large.Add("key" + std::to_string(i), std::string(200, 'x'));
  }
  EXPECT_EQ(many.values().size(), Attributes::kMaxCount);
  size_t bytes = 0;
  for (const auto& [key, value] : large.values()) bytes += key.size() + value.size();
  EXPECT_LE(bytes, Attributes::kMaxTotalBytes);
  EXPECT_GE(large.values().size(), 9u);
}

TEST(AttributesTest, ResourceAttributesArePercentDecodedAndTakenWholeOrNotAtAll) {
  Attributes attributes;
  AddResourceAttributes(" team = a%2Cb ,region=eu%20west,", &attributes);
  EXPECT_EQ(attributes.values(), (Attributes::Map{{"region", "eu west"}, {"team", "a,b"}}));
  for (const char* bad : {"x=1,nonsense", "x=%4", "x=%zz", "x=1,y=%"}) {
    Attributes none;
    AddResourceAttributes(bad, &none);
    EXPECT_TRUE(none.values().empty()) << bad;
  }
}

TEST(ContainerImageTest, APortIsNoTag) {
  EXPECT_EQ(ParseContainerImage("registry:5000/app").name, "registry:5000/app");
  EXPECT_EQ(ParseContainerImage("registry:5000/app").tag, "");
  EXPECT_EQ(ParseContainerImage("app:1").name, "app");
  EXPECT_EQ(ParseContainerImage("app:1").tag, "1");
  EXPECT_EQ(ParseContainerImage("app@sha256:12").digest, "sha256:12");
  EXPECT_EQ(ParseContainerImage("").name, "");
}

TEST(PodInfoTest, ValuesAreUnquotedAsGoQuotesThem) {
  const auto info =
      ParseDownwardApi("a=\"x\\\"y\\\\z\\n\\u00e9\\U0001f600\\x41\"\nb=\"\"\nbroken=\"\\q\"\nunquoted=x\nnothing\nc=\"=\"");
  EXPECT_EQ(info, (PodInfo::Map{{"a", "x\"y\\z\né😀A"}, {"b", ""}, {"c", "="}}));
}

TEST(PodInfoTest, WhatCannotBeReadIsEmpty) {
  EXPECT_TRUE(ReadPodInfo("/nonexistent").labels.empty());
  EXPECT_TRUE(ParseDownwardApi("a=\"\\").empty());
  EXPECT_TRUE(ParseDownwardApi("a=\"").empty());
  for (const char* cut : {"\\x4", "\\u00e", "\\U0001f60", "\\"}) {
    EXPECT_TRUE(ParseDownwardApi("a=\"" + std::string(cut) + "\"").empty()) << cut;
  }
  EXPECT_TRUE(ParseDownwardApi("a=\"" + std::string(5000, 'x') + "\"").empty());
}

}  // namespace
}  // namespace stackd

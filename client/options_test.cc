#include "client/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

namespace stackd {
namespace {

using testing::HasSubstr;

std::expected<Options, OptionsExit> Parse(std::initializer_list<const char*> args) {
  std::vector<const char*> argv{"stackctl"};
  argv.insert(argv.end(), args);
  return ParseOptions(static_cast<int>(argv.size()), argv.data());
}

class OptionsTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("STACKD_DIR");
    unsetenv("STACKD_ADDRESS");
  }
};

TEST_F(OptionsTest, FindTheDaemonInItsFolder) {
  EXPECT_EQ(Parse({"ps"})->address, "unix:/run/stackd/api.sock");
  setenv("STACKD_DIR", "", 1);
  EXPECT_EQ(Parse({"ps"})->address, "unix:/run/stackd/api.sock");
  setenv("STACKD_DIR", "/tmp/x", 1);
  EXPECT_EQ(Parse({"ps"})->address, "unix:/tmp/x/api.sock");
  setenv("STACKD_ADDRESS", "127.0.0.1:7443", 1);
  EXPECT_EQ(Parse({"ps"})->address, "127.0.0.1:7443");
  EXPECT_EQ(Parse({"ps", "--address", "unix:/y"})->address, "unix:/y");
}

TEST_F(OptionsTest, MayStandBeforeOrBehindTheCommand) {
  for (auto args : {std::initializer_list<const char*>{"-o", "json", "--timeout", "500ms", "dump", "checkout"},
                    {"dump", "checkout", "-o", "json", "--timeout", "500ms"}}) {
    auto options = Parse(args);
    ASSERT_TRUE(options.has_value()) << options.error().text;
    EXPECT_EQ(options->command, "dump");
    EXPECT_EQ(options->name, "checkout");
    EXPECT_TRUE(options->json);
    EXPECT_EQ(options->timeout_ms, 500);
  }
}

TEST_F(OptionsTest, SayWhatADumpMayInterrupt) {
  EXPECT_EQ(Parse({"dump"})->quiet, "prefer");
  EXPECT_EQ(Parse({"dump", "--quiet", "only"})->quiet, "only");
  EXPECT_FALSE(Parse({"dump", "--quiet", "perhaps"}).has_value());
}

TEST_F(OptionsTest, SayEachMistakeInOneSentenceWithExitCodeTwo) {
  for (auto args : {std::initializer_list<const char*>{},
                    {"dmp"},
                    {"ps", "--nonsense"},
                    {"ps", "extra"},
                    {"-o", "yaml", "ps"},
                    {"export", "x", "-f", "svg"},
                    {"dump", "x", "-f", "pprof"},
                    {"show", "x", "-f", "minidump"},
                    {"--timeout", "5", "ps"},
                    {"delete"},
                    {"completion", "tcsh"},
                    {"dump", "--all", "-f", "json"},
                    {"dump", "a", "b"},
                    {"groups", "extra"},
                    {"ps", "--crashes"},
                    {"list", "--crashes", "--hangs"},
                    {"diff", "a", "b", "c"},
                    {"dump", "--samples", "1"},
                    {"dump", "--samples", "101"},
                    {"dump", "--every", "1s"},
                    {"dump", "--samples", "3", "--every", "5"},
                    {"dump", "--samples", "3", "--every", "1ms"},
                    {"dump", "--samples", "3", "-f", "folded"}}) {
    auto options = Parse(args);
    ASSERT_FALSE(options.has_value()) << (args.size() > 0 ? *args.begin() : "");
    EXPECT_EQ(options.error().exit_code, 2);
    EXPECT_EQ(std::count(options.error().text.begin(), options.error().text.end(), '\n'), 1) << options.error().text;
  }
}

TEST_F(OptionsTest, TakeASeriesOfDumps) {
  auto options = Parse({"dump", "checkout", "--samples", "3", "--every", "1500ms"});
  ASSERT_TRUE(options.has_value()) << options.error().text;
  EXPECT_EQ(options->samples, 3);
  EXPECT_EQ(options->every_ms, 1500);
  EXPECT_EQ(Parse({"dump"})->samples, 1);
  EXPECT_EQ(Parse({"dump", "--samples", "2"})->every_ms, 1000);
}

TEST_F(OptionsTest, TakeTheFilesOfTls) {
  auto options = Parse({"--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c", "ps"});
  ASSERT_TRUE(options.has_value()) << options.error().text;
  EXPECT_EQ(options->tls_ca + options->tls_cert + options->tls_key, "abc");
  EXPECT_TRUE(Parse({"--tls-ca", "a", "ps"}).has_value());
  EXPECT_THAT(Parse({"--tls-cert", "b", "ps"}).error().text, HasSubstr("go together"));
}

TEST_F(OptionsTest, SuggestTheNearCommand) {
  EXPECT_THAT(Parse({"dmp"}).error().text, HasSubstr("did you mean dump?"));
  EXPECT_THAT(Parse({"lst"}).error().text, HasSubstr("did you mean list?"));
  EXPECT_THAT(Parse({"frobnicate"}).error().text, testing::Not(HasSubstr("did you mean")));
}

TEST_F(OptionsTest, HelpStartsWithExamples) {
  for (auto args : {std::initializer_list<const char*>{"--help"}, {"dump", "--help"}}) {
    auto options = Parse(args);
    ASSERT_FALSE(options.has_value());
    EXPECT_EQ(options.error().exit_code, 0);
    EXPECT_LT(options.error().text.find("Examples:"), options.error().text.find("Usage:"));
  }
}

TEST_F(OptionsTest, NameAProcessOrGiveThePidOfOneWithoutAnAgent) {
  EXPECT_EQ(Parse({"dump"})->pid, 0);
  EXPECT_EQ(Parse({"dump", "--pid", "1234"})->pid, 1234);
  for (const char* bad : {"0", "-1", "x"}) EXPECT_EQ(Parse({"dump", "--pid", bad}).error().exit_code, 2) << bad;
  EXPECT_NE(Parse({"dump", "--pid", "x"}).error().text.find("\"x\" is not the number of a process"), std::string::npos);
  EXPECT_EQ(Parse({"dump", "checkout", "--pid", "1234"}).error().exit_code, 2);
}

TEST_F(OptionsTest, TakeACoreFileInPlaceOfAProcess) {
  const auto options = Parse({"dump", "--core", "core.7", "--exe", "app", "--all", "--native-only"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->core, "core.7");
  EXPECT_EQ(options->executable, "app");
  EXPECT_EQ(Parse({"dump", "checkout", "--core", "core.7"}).error().exit_code, 2);
  EXPECT_EQ(Parse({"dump", "--pid", "7", "--core", "core.7"}).error().exit_code, 2);
  EXPECT_EQ(Parse({"dump", "--core", "core.7", "--samples", "3"}).error().exit_code, 2);
  EXPECT_EQ(Parse({"dump", "--exe", "app"}).error().exit_code, 2);
}

}  // namespace
}  // namespace stackd

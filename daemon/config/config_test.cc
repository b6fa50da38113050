#include "daemon/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <vector>

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::expected<Config, ConfigExit> Parse(std::initializer_list<const char*> args) {
  std::vector<const char*> argv{"stackd"};
  argv.insert(argv.end(), args);
  return ParseConfig(static_cast<int>(argv.size()), argv.data());
}

struct Environment {
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  const char* name_;
};

TEST(Config, WithoutArgumentsServesRunStackd) {
  auto config = Parse({});
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->dir, "/run/stackd");
  EXPECT_EQ(config->listen, "127.0.0.1:7443");
  EXPECT_EQ(config->store, "/run/stackd/store.db");
  EXPECT_EQ(config->store_max_bytes, 256ll << 20);
  EXPECT_EQ(config->store_max_age_seconds, 30ll * 86400);
  EXPECT_EQ(config->store_crashes_per_group, 5);
  EXPECT_EQ(config->ring_bytes, 1u << 20);
  EXPECT_THAT(config->debug_dirs, ElementsAre("/usr/lib/debug"));
}

TEST(Config, ServesHealthAndMetricsAndSendsNothingUnlessItIsTold) {
  auto config = Parse({});
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->health_listen + config->metrics_listen + config->otlp_endpoint + config->otlp_ca, "");
  EXPECT_EQ(config->pod_info, "/etc/podinfo");
  Environment endpoint("STACKD_OTLP_ENDPOINT", "http://collector:4317");
  config = Parse({"--health-listen", ":7444", "--metrics-listen", "none"});
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->health_listen, ":7444");
  EXPECT_EQ(config->metrics_listen, "");
  EXPECT_EQ(config->otlp_endpoint, "http://collector:4317");
  EXPECT_EQ(config->otlp_dumps, 0);
}

TEST(Config, SendsWholeDumpsOnlyToACollector) {
  EXPECT_EQ(Parse({"--otlp-endpoint", "http://collector:4317", "--otlp-dumps", "3"})->otlp_dumps, 3);
  EXPECT_THAT(Parse({"--otlp-dumps", "3"}).error().text, HasSubstr("--otlp-dumps needs --otlp-endpoint"));
  EXPECT_EQ(Parse({"--otlp-endpoint", "none", "--otlp-dumps", "1"}).error().exit_code, 2);
  EXPECT_EQ(Parse({"--otlp-endpoint", "http://collector:4317", "--otlp-dumps", "101"}).error().exit_code, 2);
  EXPECT_EQ(Parse({"--otlp-endpoint", "http://collector:4317", "--otlp-dumps", "-1"}).error().exit_code, 2);
}

TEST(Config, KeepsTheStoreInTheFolderThatIsServed) {
  auto config = Parse({"--dir", "/tmp/x"});
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->store, "/tmp/x/store.db");
}

TEST(Config, TakesEachOptionFromTheEnvironmentButAFlagWins) {
  Environment dir("STACKD_DIR", "/tmp/env");
  Environment age("STACKD_STORE_MAX_AGE", "12h");
  Environment level("STACKD_LOG_LEVEL", "debug");
  auto from_environment = Parse({});
  ASSERT_TRUE(from_environment.has_value());
  EXPECT_EQ(from_environment->dir, "/tmp/env");
  EXPECT_EQ(from_environment->store_max_age_seconds, 12 * 3600);
  EXPECT_EQ(from_environment->log_level, LogLevel::kDebug);
  auto with_flag = Parse({"--dir=/tmp/flag"});
  ASSERT_TRUE(with_flag.has_value());
  EXPECT_EQ(with_flag->dir, "/tmp/flag");
}

TEST(Config, TakesSeveralDebugFoldersAndNoTcp) {
  auto config = Parse({"--debug-dir", "/a", "--debug-dir", "/b", "--listen", "none"});
  ASSERT_TRUE(config.has_value());
  EXPECT_THAT(config->debug_dirs, ElementsAre("/a", "/b"));
  EXPECT_EQ(config->listen, "");
}

TEST(Config, SaysEachMistakeInOneSentenceWithExitCodeTwo) {
  for (std::initializer_list<const char*> args : {std::initializer_list<const char*>{"--store-max-bytes", "lots"},
                                                  {"--store-max-age", "30"},
                                                  {"--ring-bytes", "1"},
                                                  {"--log-level", "loud"},
                                                  {"--nonsense"},
                                                  {"--max-processes", "0"},
                                                  {"--store-max-dumps", "-4"},
                                                  {"--store-crashes-per-group", "0"},
                                                  {"--dir", ""},
                                                  {"--ring-bytes", "99999999999999999999"},
                                                  {"positional"}}) {
    auto config = Parse(args);
    ASSERT_FALSE(config.has_value()) << *args.begin();
    EXPECT_EQ(config.error().exit_code, 2);
    EXPECT_EQ(std::count(config.error().text.begin(), config.error().text.end(), '\n'), 1) << config.error().text;
    EXPECT_THAT(config.error().text, HasSubstr("stackd: "));
  }
  EXPECT_THAT(Parse({"--store-max-age", "30"}).error().text, HasSubstr("write it like 30d"));
  EXPECT_THAT(Parse({"--nonsense"}).error().text, HasSubstr("--nonsense"));
}

TEST(Config, TakesTheFilesOfTlsTogetherOrNotAtAll) {
  auto config = Parse({"--tls-cert", "a", "--tls-key", "b", "--tls-client-ca", "c", "--access", "d"});
  ASSERT_TRUE(config.has_value()) << config.error().text;
  EXPECT_EQ(config->tls_cert + config->tls_key + config->tls_client_ca + config->access, "abcd");
  EXPECT_THAT(Parse({"--tls-cert", "a", "--tls-key", "b"}).error().text, HasSubstr("go together"));
  EXPECT_THAT(Parse({"--tls-client-ca", "c"}).error().text, HasSubstr("go together"));
  EXPECT_THAT(Parse({"--listen", "none", "--tls-cert", "a", "--tls-key", "b", "--tls-client-ca", "c"}).error().text,
              HasSubstr("no TLS on a Unix socket"));
}

TEST(Config, NamesTheVariableOfABadValue) {
  Environment age("STACKD_STORE_MAX_AGE", "soon");
  auto config = Parse({});
  ASSERT_FALSE(config.has_value());
  EXPECT_THAT(config.error().text, HasSubstr("--store-max-age"));
}

TEST(Config, HelpStartsWithExamples) {
  auto config = Parse({"--help"});
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().exit_code, 0);
  EXPECT_LT(config.error().text.find("Examples:"), config.error().text.find("--dir"));
  EXPECT_LT(config.error().text.find("Examples:"), config.error().text.find("Usage:"));
}

TEST(Config, VersionNamesTheAbi) {
  auto config = Parse({"--version"});
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().exit_code, 0);
  EXPECT_THAT(config.error().text, testing::MatchesRegex("stackd [0-9.]+ \\(agent ABI 1\\)\n"));
}

}  // namespace
}  // namespace stackd

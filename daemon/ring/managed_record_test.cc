#include "daemon/ring/managed_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace stackd {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

template <typename T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string Runtime(uint32_t runtime) {
  return Bytes(stackd_managed_runtime{.entry = {STACKD_MANAGED_RUNTIME, STACKD_MANAGED_HOLDS_GIL, 32},
                                      .runtime = runtime,
                                      .status = STACKD_WALK_LIMIT,
                                      .version = 0x030b07f0,
                                      .instance = 0x5000});
}

std::string Frame(uint64_t key, uint32_t size_bytes = sizeof(stackd_managed_frame)) {
  return Bytes(stackd_managed_frame{
      .entry = {STACKD_MANAGED_FRAME, STACKD_MANAGED_BOUNDARY, size_bytes}, .anchor = 0x7ff0, .key = key, .position = -1});
}

std::string Symbol(std::string_view function, std::string_view file, std::string_view table) {
  std::string texts = std::string(function) + std::string(file) + std::string(table);
  texts.resize((texts.size() + 7) / 8 * 8);
  const stackd_managed_symbol symbol{
      .entry = {STACKD_MANAGED_SYMBOL, 0, static_cast<uint32_t>(sizeof(stackd_managed_symbol) + texts.size())},
      .key = 9,
      .first_line = 12,
      .function_bytes = static_cast<uint16_t>(function.size()),
      .file_bytes = static_cast<uint16_t>(file.size()),
      .table_bytes = static_cast<uint32_t>(table.size()),
      .table_format = 3};
  return Bytes(symbol) + texts;
}

TEST(ManagedRecordTest, GivesWhatEachRuntimeSaid) {
  const auto traces = ParseManaged(Runtime(STACKD_RUNTIME_CPYTHON) + Symbol("work", "/srv/app.py", "\xc8\x01") + Frame(9) +
                                   Frame(10) + Runtime(STACKD_RUNTIME_V8) + Frame(11));
  ASSERT_THAT(traces, SizeIs(2));
  EXPECT_EQ(traces[0].runtime, STACKD_RUNTIME_CPYTHON);
  EXPECT_EQ(traces[0].flags, STACKD_MANAGED_HOLDS_GIL);
  EXPECT_EQ(traces[0].status, STACKD_WALK_LIMIT);
  EXPECT_EQ(traces[0].version, 0x030b07f0u);
  EXPECT_EQ(traces[0].instance_avma, 0x5000u);
  ASSERT_THAT(traces[0].frames, SizeIs(2));
  EXPECT_EQ(traces[0].frames[0].flags, STACKD_MANAGED_BOUNDARY);
  EXPECT_EQ(traces[0].frames[0].anchor_avma, 0x7ff0u);
  EXPECT_EQ(traces[0].frames[0].key, 9u);
  EXPECT_EQ(traces[0].frames[0].position, -1);
  ASSERT_THAT(traces[0].symbols, SizeIs(1));
  EXPECT_EQ(traces[0].symbols[0].key, 9u);
  EXPECT_EQ(traces[0].symbols[0].function, "work");
  EXPECT_EQ(traces[0].symbols[0].file, "/srv/app.py");
  EXPECT_EQ(traces[0].symbols[0].table, "\xc8\x01");
  EXPECT_EQ(traces[0].symbols[0].first_line, 12u);
  EXPECT_EQ(traces[0].symbols[0].table_format, 3u);
  ASSERT_THAT(traces[1].frames, SizeIs(1));
  EXPECT_EQ(traces[1].frames[0].key, 11u);
}

TEST(ManagedRecordTest, NamesThatCouldNotBeReadAreNotThere) {
  const auto traces = ParseManaged(Runtime(STACKD_RUNTIME_V8) + Symbol("work", std::string(32, '\0'), ""));
  ASSERT_THAT(traces, SizeIs(1));
  ASSERT_THAT(traces[0].symbols, SizeIs(1));
  EXPECT_EQ(traces[0].symbols[0].function, "work");
  EXPECT_EQ(traces[0].symbols[0].file, "");
}

TEST(ManagedRecordTest, LongNamesAreCutAndTablesAreNot) {
  const std::string name(5000, 'a');
  const auto traces = ParseManaged(Runtime(STACKD_RUNTIME_V8) + Symbol(name, name, name) + Frame(9));
  ASSERT_THAT(traces, SizeIs(1));
  ASSERT_THAT(traces[0].symbols, SizeIs(1));
  EXPECT_THAT(traces[0].symbols[0].function, SizeIs(1024));
  EXPECT_THAT(traces[0].symbols[0].file, SizeIs(1024));
  EXPECT_EQ(traces[0].symbols[0].table, name);
  EXPECT_THAT(traces[0].frames, SizeIs(1));
}

TEST(ManagedRecordTest, WhatStandsBeforeAnyRuntimeIsNotTaken) {
  EXPECT_THAT(ParseManaged(Frame(1) + Runtime(1)), IsEmpty());
  EXPECT_THAT(ParseManaged({}), IsEmpty());
}

TEST(ManagedRecordTest, EntriesThatMakeNoSenseEndItAndThoseBeforeThemStand) {
  const std::string good = Runtime(1) + Frame(1);
  std::string symbol = Symbol("work", "/srv/app.py", "");
  stackd_managed_symbol lie;
  memcpy(&lie, symbol.data(), sizeof(lie));
  lie.function_bytes = 0xffff;
  symbol.replace(0, sizeof(lie), Bytes(lie));
  lie.function_bytes = 0;
  lie.table_bytes = 0xfffffff0;
  const std::string bad[] = {Frame(2, 0),          Frame(2, 4),           Frame(2, 12), Frame(2, 8), Frame(2, 40),
                             Frame(2, 0xfffffff8), Frame(2).substr(0, 7), symbol,       Bytes(lie)};
  for (const std::string& entry : bad) {
    const auto traces = ParseManaged(good + entry);
    ASSERT_THAT(traces, SizeIs(1));
    EXPECT_THAT(traces[0].frames, SizeIs(1)) << testing::PrintToString(entry);
    EXPECT_THAT(traces[0].symbols, IsEmpty());
  }
}

TEST(ManagedRecordTest, KindsOfALaterAgentArePassedOver) {
  const auto traces = ParseManaged(Runtime(1) + Bytes(stackd_managed_entry{99, 0, 8}) + Frame(1));
  ASSERT_THAT(traces, SizeIs(1));
  EXPECT_THAT(traces[0].frames, SizeIs(1));
}

TEST(ManagedRecordTest, NoThreadIsInMoreRuntimesThanThereAre) {
  std::string entries;
  for (int i = 0; i < 100; ++i) entries += Runtime(1);
  EXPECT_THAT(ParseManaged(entries), SizeIs(8));
}

}  // namespace
}  // namespace stackd

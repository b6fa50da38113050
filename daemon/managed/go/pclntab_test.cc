#include "daemon/managed/go/pclntab.h"

#include <gtest/gtest.h>

#include <random>

#include "daemon/managed/go/testing/table_maker.h"

namespace stackd {
namespace {

TEST(PclntabTest, FindsFunctionsByTheirCode) {
  const auto table = Pclntab::Parse(TableMaker().Make());
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_FALSE(table->FindFunction(0xff).has_value());
  EXPECT_EQ(table->FindFunction(0x100)->name, "main.outer");
  EXPECT_EQ(table->FindFunction(0x13f)->name, "main.outer");
  EXPECT_EQ(table->FindFunction(0x140)->name, "main.leaf");
  EXPECT_FALSE(table->FindFunction(0x150).has_value());
  EXPECT_EQ(table->FindFunctionByName("main.leaf", INT64_MAX)->entry, 0x140u);
  EXPECT_FALSE(table->FindFunctionByName("main", INT64_MAX).has_value());
  EXPECT_FALSE(table->FindFunctionByName("main.leaf", 0).has_value()) << "the deadline has passed";
}

TEST(PclntabTest, TellsFramesFilesLinesAndWhatIsInlined) {
  const auto table = Pclntab::Parse(TableMaker().Make());
  const GoFunction outer = *table->FindFunction(0x100);
  EXPECT_TRUE(outer.is_top);
  EXPECT_FALSE(outer.moves_stack);
  EXPECT_EQ(outer.id, 5);
  EXPECT_EQ(outer.inline_tree, 0x40u);
  EXPECT_EQ(table->FrameBytes(outer, 0x100), 0);
  EXPECT_EQ(table->FrameBytes(outer, 0x110), 24);
  EXPECT_EQ(table->FrameBytes(outer, 0x13f), 24);
  EXPECT_EQ(table->FrameBytes(outer, 0x140), std::nullopt);
  EXPECT_EQ(table->File(outer, 0x10f), "/src/a.go");
  EXPECT_EQ(table->File(outer, 0x110), "/src/b.go");
  EXPECT_EQ(table->Line(outer, 0x10f), 7);
  EXPECT_EQ(table->Line(outer, 0x11f), 70);
  EXPECT_EQ(table->Line(outer, 0x120), 8);
  EXPECT_EQ(table->InlineIndex(outer, 0x10f), -1);
  EXPECT_EQ(table->InlineIndex(outer, 0x110), 3);
  const GoFunction leaf = *table->FindFunction(0x140);
  EXPECT_EQ(table->FrameBytes(leaf, 0x14f), 8);
  EXPECT_EQ(table->InlineIndex(leaf, 0x140), -1);
  EXPECT_EQ(table->File(leaf, 0x140), "");
}

// Each answer is asked for; what counts is that none is looked for outside (run it under a sanitizer) and all come.
void AskAll(const Pclntab& table) {
  for (uint32_t code : {0u, 0x100u, 0x115u, 0x13fu, 0x140u, 0x14fu, 0xffffffffu}) {
    const auto function = table.FindFunction(code);
    if (!function) continue;
    table.FrameBytes(*function, code);
    table.File(*function, code);
    table.Line(*function, code);
    table.InlineIndex(*function, code);
  }
  table.FindFunctionByName("main.leaf", INT64_MAX);
}

TEST(PclntabTest, TakesTablesThatAreCutShortAnywhere) {
  const std::vector<uint8_t> whole = TableMaker().Make();
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto table = Pclntab::Parse({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
    if (table) AskAll(*table);
  }
}

TEST(PclntabTest, TakesTablesWithAnyBytes) {
  std::mt19937 random(1);
  const std::vector<uint8_t> whole = TableMaker().Make();
  for (int round = 0; round < 20'000; ++round) {
    std::vector<uint8_t> bytes = whole;
    for (int i = 0; i < 4; ++i) bytes[8 + random() % (bytes.size() - 8)] = static_cast<uint8_t>(random());
    const auto table = Pclntab::Parse(std::move(bytes));
    if (table) AskAll(*table);
  }
}

TEST(PclntabTest, RefusesOtherFormats) {
  std::vector<uint8_t> bytes = TableMaker().Make();
  bytes[0] = 0xf0;  // Go 1.18
  EXPECT_FALSE(Pclntab::Parse(bytes).has_value());
}

}  // namespace
}  // namespace stackd

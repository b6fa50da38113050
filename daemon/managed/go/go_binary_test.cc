#include "daemon/managed/go/go_binary.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "daemon/managed/go/testing/made_up_program.h"

namespace stackd {
namespace {

class GoBinaryTest : public GoProgramTest {};

TEST_F(GoBinaryTest, IsKnownByItsSections) {
  EXPECT_TRUE(GoFile::IsGo(*File()));
  Put(kSections + sizeof(Elf64_Shdr), uint32_t{15});  // that section has another's name
  EXPECT_FALSE(GoFile::IsGo(*File()));
}

TEST_F(GoBinaryTest, FindsCodeAndListWhereTheyWereLoaded) {
  Load();
  const auto binary = Find();
  ASSERT_TRUE(binary.has_value()) << binary.error().message;
  EXPECT_EQ(binary->version(), "go1.26.8");
  EXPECT_EQ(binary->layout().minor, 26);
  EXPECT_EQ(binary->text_svma(), kBase + kText);
  EXPECT_EQ(binary->text_end_svma(), kBase + kTextEnd);
  EXPECT_EQ(binary->all_goroutines_svma(), kBase + kGoroutines);
  EXPECT_EQ(binary->FindFunction(kBase + kOuter)->name, "main.outer");
  EXPECT_EQ(binary->FindFunction(kBase + kLeaf + 15)->name, "runtime.forEachG");
  EXPECT_FALSE(binary->FindFunction(kBase + kTextEnd).has_value());
  EXPECT_FALSE(binary->FindFunction(kBase + kText - 1).has_value());
}

TEST_F(GoBinaryTest, TellsWhatWasCompiledIntoWhat) {
  Load();
  const auto binary = Find();
  ASSERT_TRUE(binary.has_value()) << binary.error().message;
  const std::vector<GoPlace> inlined = binary->Places(kBase + kOuter + 0x10);
  ASSERT_EQ(inlined.size(), 2u);
  EXPECT_EQ(inlined[0].function, "main.inner");
  EXPECT_EQ(inlined[0].file, "/src/b.go");
  EXPECT_EQ(inlined[0].line, 70);
  EXPECT_TRUE(inlined[0].inlined);
  EXPECT_EQ(inlined[1].function, "main.outer");
  EXPECT_EQ(inlined[1].line, 7) << "where the call stands";
  EXPECT_FALSE(inlined[1].inlined);
  EXPECT_EQ(binary->Places(kBase + kOuter).size(), 1u);
  EXPECT_TRUE(binary->Places(kBase + kTextEnd).empty());
}

TEST_F(GoBinaryTest, TakesAnInlinedCallThatMakesNoSense) {
  PutInlinedCall(TableMaker::kInnerName, 0x40);  // behind the function's end
  Load();
  const auto binary = Find();
  ASSERT_TRUE(binary.has_value()) << binary.error().message;
  EXPECT_EQ(binary->Places(kBase + kOuter + 0x10).size(), 1u);
}

TEST_F(GoBinaryTest, SaysWhichVersionItDoesNotKnow) {
  PutBuildInfo("go1.20.14");
  const auto file = Open();
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().message, "it is built by go1.20.14, and goroutines are known of go1.21 to go1.26");
}

TEST_F(GoBinaryTest, RefusesAVersionThatDoesNotEnd) {
  image_[kBuildInfo + 32] = 200;
  EXPECT_EQ(Open().error().message, "it does not say of which version it is");
}

TEST_F(GoBinaryTest, SaysWhatItDidNotFindInMemory) {
  memcpy(mapped_, image_.data(), kBytes);
  EXPECT_EQ(Find().error().message, "the description of its code was not found in its memory");
  Load();
  image_[kLeaf] = 0x90;  // the first load is none
  EXPECT_EQ(Find().error().message, "its list of goroutines was not found");
}

TEST_F(GoBinaryTest, TheDeadlineHolds) {
  Load();
  EXPECT_FALSE(GoFile::Open(File(), 0).has_value());
}

TEST_F(GoBinaryTest, TakesFilesAndMemoryWithAnyBytes) {
  Load();
  std::mt19937 random(1);
  const std::vector<uint8_t> whole = image_;
  for (int round = 0; round < 3000; ++round) {
    image_ = whole;
    // Headers of the file stay: a module that does not open is the module's own test.
    for (int i = 0; i < 8; ++i) image_[kBuildInfo + random() % (kBytes - kBuildInfo)] = static_cast<uint8_t>(random());
    memcpy(mapped_, image_.data(), kBytes);
    const auto binary = Find();
    if (!binary) continue;
    for (uint64_t svma = kBase + kText; svma < kBase + kTextEnd; svma += 5) binary->Places(svma);
  }
}

}  // namespace
}  // namespace stackd

#include "daemon/managed/v8/script_lines.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/fd.h"

namespace stackd {
namespace {

constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

ProcessFiles OwnMemory() {
  ProcessFiles files;
  Fd mem(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(files.SetMemory(&mem));
  return files;
}

// A script and its text, as they lie in V8's memory.
class FakeScript {
 public:
  explicit FakeScript(std::string text, bool two_bytes = false) : text_(std::move(text)) {
    facts_.script = Tagged(script_);
    facts_.source = Tagged(source_);
    facts_.source_map = 0x1234567;
    facts_.chars = reinterpret_cast<uint64_t>(text_.data());
    facts_.chars_count = static_cast<uint32_t>(two_bytes ? text_.size() / 2 : text_.size());
    facts_.two_bytes = two_bytes;
    facts_.source_bytes_at = 8;
    script_[1] = facts_.source;
    source_[0] = facts_.source_map;
  }
  FakeScript(const FakeScript&) = delete;

  stackd_v8_script& facts() { return facts_; }
  void MoveText() { script_[1] += 64; }
  void FreeText() { source_[0] = 1; }

 private:
  static uint64_t Tagged(const uint64_t* object) { return reinterpret_cast<uint64_t>(object) + 1; }

  const std::string text_;
  uint64_t script_[4] = {};
  uint64_t source_[4] = {};
  stackd_v8_script facts_ = {};
};

int32_t LineAt(FakeScript& script, uint32_t position) {
  ScriptLines lines;
  lines.Want(script.facts(), position);
  lines.Read(OwnMemory(), kNoDeadline);
  return lines.LineOf(script.facts(), position);
}

TEST(ScriptLines, APlaceIsOnTheLineAfterAsManyEndsOfLines) {
  const std::string text = "one\ntwo\n\nfour";
  FakeScript script(text);
  EXPECT_EQ(LineAt(script, 0), 1);
  EXPECT_EQ(LineAt(script, 3), 1) << "the end of a line belongs to it";
  EXPECT_EQ(LineAt(script, 4), 2);
  EXPECT_EQ(LineAt(script, 8), 3);
  EXPECT_EQ(LineAt(script, 12), 4);
  EXPECT_EQ(LineAt(script, 13), 4) << "the end of the text";
  EXPECT_EQ(LineAt(script, 14), 0) << "behind the text";
}

TEST(ScriptLines, CrAndLfTogetherAreOneEnd) {
  FakeScript script("a\r\nb\rc\r");
  EXPECT_EQ(LineAt(script, 1), 1);
  EXPECT_EQ(LineAt(script, 2), 1);
  EXPECT_EQ(LineAt(script, 3), 2);
  EXPECT_EQ(LineAt(script, 5), 3);
  EXPECT_EQ(LineAt(script, 7), 4);
}

TEST(ScriptLines, TheSeparatorsOfUnicodeEndLinesOfTwoByteText) {
  const char16_t text[] = u"a\u2028b\u2029c\nd";
  FakeScript script(std::string(reinterpret_cast<const char*>(text), sizeof(text) - 2), true);
  EXPECT_EQ(LineAt(script, 0), 1);
  EXPECT_EQ(LineAt(script, 2), 2);
  EXPECT_EQ(LineAt(script, 4), 3);
  EXPECT_EQ(LineAt(script, 6), 4);
}

TEST(ScriptLines, TextOfManyPiecesIsCountedThrough) {
  std::string text;
  while (text.size() < 300000) text += "a line of text\r\n";
  FakeScript script(text);
  EXPECT_EQ(LineAt(script, 16 * 15000 + 3), 15001);
}

TEST(ScriptLines, AScriptMayBeginOnAnotherLine) {
  FakeScript script("a\nb");
  script.facts().line_offset = 41;
  EXPECT_EQ(LineAt(script, 2), 43);
}

TEST(ScriptLines, TextThatIsNotWhereItWasIsNotCounted) {
  FakeScript moved("a\nb");
  moved.MoveText();
  EXPECT_EQ(LineAt(moved, 2), 0);
  FakeScript freed("a\nb");
  freed.FreeText();
  EXPECT_EQ(LineAt(freed, 2), 0);
}

TEST(ScriptLines, WhatCannotBeReadHasNoLines) {
  FakeScript script("a\nb");
  script.facts().chars = 4096;
  EXPECT_EQ(LineAt(script, 2), 0);
  script.facts().script = 5;
  EXPECT_EQ(LineAt(script, 2), 0);
}

TEST(ScriptLines, AfterItsDeadlineNothingIsRead) {
  FakeScript script("a\nb");
  ScriptLines lines;
  lines.Want(script.facts(), 2);
  lines.Read(OwnMemory(), 0);
  EXPECT_EQ(lines.LineOf(script.facts(), 2), 0);
  EXPECT_EQ(lines.missing_scripts(), 1);
}

}  // namespace
}  // namespace stackd

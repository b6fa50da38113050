#include "client/commands/finding_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stackd/v1/stackd.pb.h"

namespace stackd {
namespace {

using testing::Contains;
using testing::EndsWith;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

TEST(FindingTexts, ThereIsOneForEachKind) {
  const std::vector<FindingText> texts = FindingTexts();
  const auto* kinds = v1::Finding::Kind_descriptor();
  for (int i = 0; i < kinds->value_count(); ++i) {
    if (kinds->value(i)->number() == v1::Finding::KIND_UNSPECIFIED) continue;
    EXPECT_THAT(texts, Contains(Field(&FindingText::kind, kinds->value(i)->name())));
  }
  EXPECT_EQ(texts.size(), static_cast<size_t>(kinds->value_count() - 1));
}

TEST(FindingTexts, EachSaysWhatIsCertainAndWhatToDo) {
  for (const FindingText& text : FindingTexts()) {
    EXPECT_THAT(std::string(text.text), HasSubstr("\nCertain: ")) << text.kind;
    EXPECT_THAT(std::string(text.text), HasSubstr("\nNext: ")) << text.kind;
    EXPECT_THAT(std::string(text.text), EndsWith("\n")) << text.kind;
    EXPECT_THAT(FirstSentence(text.text), Not(HasSubstr("\n"))) << text.kind;
  }
}

}  // namespace
}  // namespace stackd

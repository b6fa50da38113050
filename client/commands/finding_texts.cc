#include "client/commands/finding_texts.h"

#include <algorithm>

namespace stackd {
namespace {

constexpr std::string_view kPage =
#include "client/findings_page.inc"
    ;
constexpr std::string_view kHead = "\n## ";

}  // namespace

std::vector<FindingText> FindingTexts() {
  std::vector<FindingText> texts;
  for (size_t head = kPage.find(kHead); head != std::string_view::npos;) {
    const size_t next = kPage.find(kHead, head + 1);
    const std::string_view section = kPage.substr(head + kHead.size(), next - head - kHead.size());
    const size_t line_end = section.find('\n');
    texts.push_back({section.substr(0, line_end), section.substr(line_end + 2)});
    head = next;
  }
  return texts;
}

std::string FirstSentence(std::string_view text) {
  std::string sentence(text.substr(0, text.find_first_of(".:")));
  std::ranges::replace(sentence, '\n', ' ');
  return sentence;
}

}  // namespace stackd

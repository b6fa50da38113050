// What each finding means: the sections of deploy/docs/findings.md, which is compiled in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stackd {

struct FindingText {
  std::string_view kind;  // "DEADLOCK", as in Finding.Kind
  std::string_view text;  // paragraphs, the last with one line break at its end
};

// In the order of the page.
std::vector<FindingText> FindingTexts();

// In one line, without the full stop.
std::string FirstSentence(std::string_view text);

}  // namespace stackd

#include <algorithm>
#include <cctype>

#include "client/commands/commands.h"
#include "client/commands/finding_texts.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/base/near_name.h"

namespace stackd {
namespace {

// "self-deadlock" is SELF_DEADLOCK.
std::string KindTyped(std::string text) {
  for (char& c : text) c = c == '-' || c == ' ' ? '_' : static_cast<char>(toupper(static_cast<unsigned char>(c)));
  return text;
}

std::vector<std::vector<std::string>> Rows(const std::vector<FindingText>& texts) {
  std::vector<std::vector<std::string>> rows{{"FINDING", "MEANING"}};
  for (const FindingText& text : texts) rows.push_back({std::string(text.kind), FirstSentence(text.text)});
  return rows;
}

}  // namespace

int RunExplain(Api&, const Options& options) {
  const std::vector<FindingText> texts = FindingTexts();
  if (options.name.empty()) return Print(Table(Rows(texts))) ? kOk : kFailure;
  const std::string kind = KindTyped(options.name);
  const auto found = std::ranges::find(texts, kind, &FindingText::kind);
  if (found != texts.end()) {
    return Print(kind + "\n\n" + std::string(found->text)) ? kOk : kFailure;
  }
  std::vector<std::string> kinds;
  for (const FindingText& text : texts) kinds.emplace_back(text.kind);
  const std::vector<std::string> near = NearNames(kind, kinds);
  Complain("no finding is called \"" + options.name + "\"; " +
           (near.empty() ? "stackctl explain lists them" : "did you mean " + near[0] + "?"));
  return kNotFound;
}

}  // namespace stackd

#include "daemon/resource/attributes.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "daemon/base/printable.h"

namespace stackd {
namespace {

constexpr size_t kMaxKeyBytes = 128;

bool IsName(std::string_view key) {
  return key.size() <= kMaxKeyBytes && std::ranges::all_of(key, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-' || c == '/';
         });
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    result += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return result;
}

}  // namespace

void Attributes::Add(std::string_view key, std::string_view value) {
  if (key.empty() || value.empty() || !IsName(key) || value.size() > kMaxValueBytes || Has(key)) return;
  // Three bytes may stand for one that is no text.
  std::string text = PrintableText(value);
  const size_t bytes = key.size() + text.size();
  if (text.size() > kMaxValueBytes || values_.size() == kMaxCount || bytes > kMaxTotalBytes - total_bytes_) return;
  total_bytes_ += bytes;
  values_.emplace(key, std::move(text));
}

const std::string& Attributes::Get(std::string_view key) const {
  static const std::string kNone;
  const auto found = values_.find(key);
  return found == values_.end() ? kNone : found->second;
}

std::optional<KeyValuePairs> ParseKeyValuePairs(std::string_view text) {
  KeyValuePairs pairs;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    if (Trimmed(part).empty()) continue;
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    auto value = PercentDecoded(Trimmed(part.substr(equals + 1)));
    if (!value) return std::nullopt;
    pairs.emplace_back(Trimmed(part.substr(0, equals)), std::move(*value));
  }
  return pairs;
}

void AddResourceAttributes(std::string_view text, Attributes* attributes) {
  const auto pairs = ParseKeyValuePairs(text);
  if (!pairs) return;
  for (const auto& [key, value] : *pairs) attributes->Add(key, value);
}

}  // namespace stackd

#include "daemon/analyze/names/function_name.h"

#include <algorithm>

namespace stackd {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLowerHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f'); }

// Cuts ".constprop.0", ".cold" and the like.
bool CutCloneSuffix(std::string_view* name) {
  std::string_view rest = *name;
  const auto is_digit = [](char c) { return IsDigit(c); };
  const auto last_dot = rest.rfind('.');
  if (last_dot != rest.npos && last_dot + 1 < rest.size() &&
      std::all_of(rest.begin() + last_dot + 1, rest.end(), is_digit)) {
    rest = rest.substr(0, last_dot);
  }
  for (std::string_view suffix : {".constprop", ".isra", ".part", ".cold", ".lto_priv"}) {
    if (!rest.ends_with(suffix)) continue;
    *name = rest.substr(0, rest.size() - suffix.size());
    return true;
  }
  return false;
}

// Cuts " [clone .cold]", as demanglers write it.
bool CutCloneRemark(std::string_view* name) {
  const auto begin = name->rfind(" [clone ");
  if (begin == name->npos || !name->ends_with(']')) return false;
  *name = name->substr(0, begin);
  return true;
}

// Cuts "::h0123456789abcdef", which differs with every build of a Rust program.
bool CutRustHash(std::string_view* name) {
  constexpr size_t kHashBytes = 3 + 16;
  if (name->size() <= kHashBytes) return false;
  const std::string_view hash = name->substr(name->size() - kHashBytes);
  if (!hash.starts_with("::h") || !std::all_of(hash.begin() + 3, hash.end(), IsLowerHexDigit)) return false;
  *name = name->substr(0, name->size() - kHashBytes);
  return true;
}

bool IsIdentifier(char c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Length of the group that `text` begins with, up to the bracket that closes it; all of the text if none does. Brackets of
// other kinds inside are groups of their own; "->" closes nothing.
size_t GroupLength(std::string_view text) {
  std::string open_brackets;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '<' || c == '(' || c == '[' || c == '{') open_brackets.push_back(c);
    if (c == '>' && i > 0 && text[i - 1] == '-') continue;
    const char opening = c == '>' ? '<' : c == ')' ? '(' : c == ']' ? '[' : c == '}' ? '{' : 0;
    if (opening == 0) continue;
    // What closes an outer bracket closes those inside it: a '<' may have been an operator.
    const size_t open = open_brackets.rfind(opening);
    if (open == open_brackets.npos) continue;
    open_brackets.resize(open);
    if (open_brackets.empty()) return i + 1;
  }
  return text.size();
}

// The walk through one name.
class NamePlainer {
 public:
  explicit NamePlainer(std::string_view rest) : rest_(rest) {}

  std::string Run() {
    while (!rest_.empty() && Step()) {
    }
    return std::move(plain_);
  }

 private:
  // False at the end of what belongs to the name.
  bool Step() {
    if (AtOperator()) {
      TakeOperator();
      return true;
    }
    switch (rest_[0]) {
      case '<':
        TakeAngles();
        return true;
      case '(':
        TakeParentheses();
        return true;
      case '{':
        TakeBraces();
        return true;
      case '[':
        Drop(GroupLength(rest_));
        return true;
      case ' ':
        return TakeSpace();
      default:
        Keep(1);
        return true;
    }
  }

  void Keep(size_t count) {
    plain_ += rest_.substr(0, count);
    rest_.remove_prefix(count);
  }
  void Drop(size_t count) { rest_.remove_prefix(count); }

  bool AtOperator() const {
    constexpr std::string_view kOperator = "operator";
    const bool at_begin = plain_.empty() || !IsIdentifier(plain_.back());
    return at_begin && rest_.starts_with(kOperator) && rest_.size() > kOperator.size() &&
           !IsIdentifier(rest_[kOperator.size()]);
  }

  // "operator()", "operator<<", "operator new[]", "operator bool"
  void TakeOperator() {
    Keep(std::string_view("operator").size());
    if (rest_.starts_with("()")) return Keep(2);
    const size_t symbols = std::min(rest_.find_first_not_of("<>=!+-*/%^&|~,[]"), rest_.size());
    Keep(symbols > 0 ? symbols : std::min(rest_.find('('), rest_.size()));
  }

  void TakeAngles() {
    const size_t length = GroupLength(rest_);
    const std::string_view group = rest_.substr(0, length);
    if (group.starts_with("<lambda")) {
      plain_ += "{lambda}";
      return Drop(length);
    }
    // Rust: "<T as Trait>::f" names the function, while "f::<T>" is the T of a template.
    if (plain_.empty() || group.starts_with("<impl ")) return Keep(length);
    if (plain_.ends_with("::")) plain_.resize(plain_.size() - 2);
    Drop(length);
  }

  void TakeParentheses() {
    constexpr std::string_view kAnonymous = "(anonymous namespace)";
    if (rest_.starts_with(kAnonymous)) return Keep(kAnonymous.size());
    const size_t length = GroupLength(rest_);
    // Go: "main.(*T).Run".
    if (plain_.ends_with('.')) return Keep(length);
    Drop(length);
  }

  // "{lambda(int)#1}", "{closure#0}", "{{closure}}": numbers count what else is in the file.
  void TakeBraces() {
    const size_t length = GroupLength(rest_);
    const std::string_view group = rest_.substr(0, length);
    plain_ += group.find("lambda") != group.npos ? "{lambda}" : group.find("closure") != group.npos ? "{closure}" : group;
    Drop(length);
  }

  // Behind the return type, or before a qualifier.
  bool TakeSpace() {
    const std::string_view next = rest_.substr(1);
    for (std::string_view qualifier : {"const", "volatile", "noexcept", "&", "[", "requires "}) {
      if (!plain_.empty() && next.starts_with(qualifier)) return false;
    }
    Drop(1);
    // "operator< <int>"
    if (!next.starts_with('<')) plain_.clear();
    return true;
  }

  std::string plain_;
  std::string_view rest_;
};

// Processors and tricks that C libraries have variants of functions for.
constexpr std::string_view kVariants[] = {"_sse2",   "_sse3", "_ssse3",   "_sse4", "_sse42", "_avx", "_avx2",
                                          "_avx512", "_evex", "_evex512", "_erms", "_fma",   "_fma4"};

// Where the mark of a variant begins in `name`; its end if it has none.
size_t VariantBegin(std::string_view name) {
  size_t begin = name.size();
  for (std::string_view variant : kVariants) {
    for (size_t i = name.find(variant); i != name.npos; i = name.find(variant, i + 1)) {
      const size_t end = i + variant.size();
      if (end == name.size() || name[end] == '_') begin = std::min(begin, i);
    }
  }
  return begin;
}

}  // namespace

std::string_view WithoutBuildMarks(std::string_view function) {
  while (CutCloneRemark(&function) || CutCloneSuffix(&function) || CutRustHash(&function)) {
  }
  return function;
}

std::string PlainFunction(std::string_view function) {
  function = WithoutBuildMarks(function);
  std::string plain = NamePlainer(function).Run();
  return plain.empty() ? std::string(function) : plain;
}

std::string PlainLibcFunction(std::string_view function) {
  std::string_view plain = function;
  constexpr std::string_view kInternal = "__GI_", kAllocator = "__libc_";
  if (plain.starts_with(kInternal)) plain.remove_prefix(kInternal.size());
  for (std::string_view name : {"free", "malloc", "calloc", "realloc", "memalign"}) {
    if (plain.starts_with(kAllocator) && plain.substr(kAllocator.size()) == name) plain = name;
  }
  if (plain == "cfree") plain = "free";
  const std::string_view without_variant = plain.substr(0, VariantBegin(plain));
  const size_t name_begin = without_variant.find_first_not_of('_');
  if (without_variant.size() < plain.size() && name_begin != plain.npos) {
    plain = without_variant.substr(name_begin);
    if (plain.ends_with("_unaligned")) plain.remove_suffix(std::string_view("_unaligned").size());
    // One piece of code with several names.
    if (plain == "memcpy" || plain == "mempcpy") plain = "memmove";
  }
  return std::string(plain);
}

}  // namespace stackd

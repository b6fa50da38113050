#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "daemon/group/assemble.h"

namespace stackd {
namespace {

// Raised with any change of what is hashed: fingerprints of different rules must not meet in one group.
constexpr std::string_view kRule = "stackd-1";

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

std::string_view Normalized(std::string_view function) {
  while (CutCloneRemark(&function) || CutCloneSuffix(&function) || CutRustHash(&function)) {
  }
  return function;
}

// The length goes first, so that no text can imitate the border between two.
void Add(std::string_view text, std::string* input) {
  const uint64_t size_bytes = text.size();
  input->append(reinterpret_cast<const char*>(&size_bytes), sizeof(size_bytes));
  input->append(text);
}

std::string HexDigits(XXH128_hash_t hash) {
  char digits[33];
  snprintf(digits, sizeof(digits), "%016lx%016lx", hash.high64, hash.low64);
  return digits;
}

}  // namespace

std::string Fingerprint(const v1::Stack& stack) {
  std::string input;
  Add(kRule, &input);
  for (const v1::Frame& frame : stack.frames()) {
    if (!frame.function().empty()) {
      Add(Normalized(frame.function()), &input);
    } else {
      Add("", &input);
      Add(frame.module(), &input);
      // Code without a file has no offset; where it lies is all that tells it from other such code.
      Add(frame.module_offset().empty() ? frame.address() : frame.module_offset(), &input);
    }
  }
  return HexDigits(XXH3_128bits(input.data(), input.size()));
}

}  // namespace stackd

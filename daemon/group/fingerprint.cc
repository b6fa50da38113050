#include "daemon/group/fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include "daemon/group/assemble.h"

namespace stackd {
namespace {

// Raised with any change of what is hashed: fingerprints of different rules must not meet in one group.
constexpr std::string_view kRule = "stackd-2";
// Seeds, so that no function's name can be equal to a place.
constexpr uint64_t kNamed = 1, kUnnamed = 2;

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

XXH128_hash_t HashOfFrame(const v1::Frame& frame) {
  if (!frame.function().empty()) {
    const std::string_view name = Normalized(frame.function());
    return XXH3_128bits_withSeed(name.data(), name.size(), kNamed);
  }
  std::string place;
  Add(frame.module(), &place);
  // Code without a file has no offset; where it lies is all that tells it from other such code.
  Add(frame.module_offset().empty() ? frame.address() : frame.module_offset(), &place);
  return XXH3_128bits_withSeed(place.data(), place.size(), kUnnamed);
}

std::string FingerprintOf(std::span<const XXH128_hash_t> frames) {
  std::string input;
  input.reserve(kRule.size() + frames.size() * sizeof(XXH128_canonical_t));
  input += kRule;
  for (const XXH128_hash_t& frame : frames) {
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, frame);
    input.append(reinterpret_cast<const char*>(bytes.digest), sizeof(bytes.digest));
  }
  return HexDigits(XXH3_128bits(input.data(), input.size()));
}

std::string Fingerprint(const v1::Stack& stack) {
  std::vector<XXH128_hash_t> frames;
  frames.reserve(stack.frames_size());
  for (const v1::Frame& frame : stack.frames()) frames.push_back(HashOfFrame(frame));
  return FingerprintOf(frames);
}

}  // namespace stackd

#include "daemon/fingerprint/fingerprint.h"

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include "daemon/analyze/names/function_name.h"
#include "daemon/analyze/names/runtime_frame.h"

namespace stackd {
namespace {

// Raised with any change of what is hashed: fingerprints of different rules must not meet in one group.
constexpr std::string_view kRule = "stackd-3";
// Seeds, so that no function's name can be equal to a place.
constexpr uint64_t kNamed = 1, kUnnamed = 2;

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
    // Marks of a build are a compiler's habit; a runtime's names are as they are.
    const std::string_view name =
        IsOfRuntime(frame) ? std::string_view(frame.function()) : WithoutBuildMarks(frame.function());
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
  for (const v1::Frame& frame : stack.frames()) {
    if (!frame.replaced()) frames.push_back(HashOfFrame(frame));
  }
  return FingerprintOf(frames);
}

}  // namespace stackd

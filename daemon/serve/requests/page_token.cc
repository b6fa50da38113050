#include "daemon/serve/requests/page_token.h"

#include <charconv>
#include <cstdio>
#include <string_view>

namespace stackd {
namespace {

constexpr size_t kMaxTokenBytes = 512;

// FNV-1a: tells tokens apart that were mixed up or cut, not those that were forged. A forged one names a place in a list
// that its maker may read anyway.
uint64_t Checksum(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ull;
  return hash;
}

std::string Hex(std::string_view bytes) {
  std::string result;
  char pair[3];
  for (unsigned char c : bytes) {
    snprintf(pair, sizeof(pair), "%02x", c);
    result += pair;
  }
  return result;
}

std::string Seal(const std::string& place, const std::string& filter) {
  char checksum[17];
  snprintf(checksum, sizeof(checksum), "%016llx", static_cast<unsigned long long>(Checksum(place + '\0' + filter)));
  return checksum;
}

}  // namespace

std::string EncodePageToken(const PagePlace& place, const std::string& filter) {
  std::string text = std::to_string(place.connect_wall_ns) + "/" + place.id;
  return Seal(text, filter) + Hex(text);
}

Result<PagePlace> DecodePageToken(const std::string& token, const std::string& filter) {
  auto bad = [] {
    return Error(Code::kInvalidArgument, "the page_token is not one that this list gave: start again without it",
                 "BAD_PAGE_TOKEN");
  };
  if (token.size() < 16 || token.size() > kMaxTokenBytes || token.size() % 2 != 0) return bad();
  std::string text;
  for (size_t i = 16; i < token.size(); i += 2) {
    unsigned value = 0;
    auto [end, error] = std::from_chars(token.data() + i, token.data() + i + 2, value, 16);
    if (error != std::errc() || end != token.data() + i + 2) return bad();
    text += static_cast<char>(value);
  }
  if (token.substr(0, 16) != Seal(text, filter)) return bad();
  PagePlace place;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), place.connect_wall_ns);
  if (error != std::errc() || end == text.data() + text.size() || *end != '/') return bad();
  place.id = text.substr(static_cast<size_t>(end + 1 - text.data()));
  return place;
}

}  // namespace stackd

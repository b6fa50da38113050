#include "daemon/access/page_seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstdio>
#include <cstdlib>

namespace stackd {
namespace {

constexpr size_t kMacBytes = 16;
constexpr size_t kMacCharacters = kMacBytes * 2;
constexpr size_t kMaxTokenBytes = 4096;

void AppendField(std::string* message, std::string_view field) {
  *message += std::to_string(field.size()) + ":";
  *message += field;
}

}  // namespace

PageSeal::PageSeal() {
  // Without randomness nothing can be sealed, nor any TLS be spoken.
  if (RAND_bytes(key_.data(), static_cast<int>(key_.size())) != 1) abort();
}

std::string PageSeal::Mac(std::string_view caller, std::string_view list, std::string_view token) const {
  std::string message;
  AppendField(&message, caller);
  AppendField(&message, list);
  AppendField(&message, token);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned digest_bytes = 0;
  HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), reinterpret_cast<const unsigned char*>(message.data()),
       message.size(), digest, &digest_bytes);
  std::string text;
  for (size_t i = 0; i < kMacBytes; ++i) {
    char pair[3];
    snprintf(pair, sizeof(pair), "%02x", digest[i]);
    text += pair;
  }
  return text;
}

std::string PageSeal::Close(std::string_view caller, std::string_view list, const std::string& token) const {
  return Mac(caller, list, token) + token;
}

Result<std::string> PageSeal::Open(std::string_view caller, std::string_view list, const std::string& sealed) const {
  if (sealed.size() > kMacCharacters && sealed.size() <= kMaxTokenBytes) {
    std::string token = sealed.substr(kMacCharacters);
    const std::string mac = Mac(caller, list, token);
    if (CRYPTO_memcmp(mac.data(), sealed.data(), kMacCharacters) == 0) return token;
  }
  return Error(Code::kInvalidArgument,
               "the page_token is not one that this list gave to " + std::string(caller) + ": start again without it",
               "BAD_PAGE_TOKEN");
}

}  // namespace stackd

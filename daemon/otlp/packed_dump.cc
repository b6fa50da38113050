#include "daemon/otlp/packed_dump.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <openssl/evp.h>

#include <memory>
#include <string_view>

#include "daemon/export/export.h"

namespace stackd {
namespace {

// Who reads it back answers it in one message, which stock clients of gRPC take up to 4 MiB.
constexpr size_t kMaxDumpBytes = (4u << 20) - (64u << 10);
// As base64 it has a third more. A collector takes requests of 4 MiB.
constexpr size_t kMaxGzipBytes = 1u << 20;

struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

std::string Base64(const std::string& bytes) {
  // With room for the zero that OpenSSL writes behind it.
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

std::string DigestOf(EVP_MD_CTX* context) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned size_bytes = 0;
  EVP_DigestFinal_ex(context, hash, &size_bytes);
  std::string digest = "sha256:";
  for (unsigned i = 0; i < size_bytes; ++i) {
    digest += "0123456789abcdef"[hash[i] >> 4];
    digest += "0123456789abcdef"[hash[i] & 15];
  }
  return digest;
}

Status TooLarge(const std::string& what, size_t bytes) {
  return {Code::kResourceExhausted, what + " has more than " + std::to_string(bytes >> 10) + " KiB"};
}

}  // namespace

Result<PackedDumpBody> PackDumpBody(const v1::Dump& dump) {
  if (dump.ByteSizeLong() > kMaxDumpBytes) return std::unexpected(TooLarge("it", kMaxDumpBytes));
  const std::unique_ptr<EVP_MD_CTX, FreeDigest> digest(EVP_MD_CTX_new());
  if (digest == nullptr || EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) != 1) {
    return Error(Code::kResourceExhausted, "there is no memory for its digest");
  }
  PackedDumpBody body;
  std::string compressed;
  {
    google::protobuf::io::StringOutputStream bytes(&compressed);
    google::protobuf::io::GzipOutputStream gzip(&bytes);
    google::protobuf::io::CodedOutputStream out(&gzip);
    ExportJson(dump, [&](std::string_view piece) {
      body.json_bytes += piece.size();
      EVP_DigestUpdate(digest.get(), piece.data(), piece.size());
      out.WriteRaw(piece.data(), static_cast<int>(piece.size()));
      return true;
    });
  }
  if (compressed.size() > kMaxGzipBytes) return std::unexpected(TooLarge("its compressed form", kMaxGzipBytes));
  body.text = Base64(compressed);
  body.digest = DigestOf(digest.get());
  return body;
}

}  // namespace stackd

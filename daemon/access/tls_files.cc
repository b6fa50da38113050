#include "daemon/access/tls_files.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace stackd {
namespace {

std::unexpected<Status> Fault(const std::string& flag, const std::string& file, const std::string& what) {
  ERR_clear_error();
  return Error(Code::kInvalidArgument, flag + " " + file + ": " + what);
}

}  // namespace

Result<void> CheckTlsFiles(const TlsFiles& files) {
  const struct {
    const char* flag;
    const std::string& file;
  } all[] = {{"--tls-cert", files.cert}, {"--tls-key", files.key}, {"--tls-client-ca", files.client_ca}};
  for (const auto& [flag, file] : all) {
    if (access(file.c_str(), R_OK) != 0) return Fault(flag, file, strerror(errno));
  }
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.cert.c_str()) != 1) {
    return Fault("--tls-cert", files.cert, "this is no certificate chain in PEM");
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Fault("--tls-key", files.key, "this is no private key in PEM, or not that of " + files.cert);
  }
  if (SSL_CTX_load_verify_locations(context.get(), files.client_ca.c_str(), nullptr) != 1) {
    return Fault("--tls-client-ca", files.client_ca, "there is no certificate in PEM in it");
  }
  const ASN1_TIME* end = X509_get0_notAfter(SSL_CTX_get0_certificate(context.get()));
  if (X509_cmp_current_time(end) < 0) return Fault("--tls-cert", files.cert, "the certificate has expired");
  return {};
}

}  // namespace stackd

#include "daemon/http/server_tls.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/verify_context.hpp>
#include <utility>

#include "daemon/log/log.h"

namespace stackd {
namespace {

namespace ssl = boost::asio::ssl;
using boost::asio::buffer;
using boost::system::error_code;

int MarkIndex() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

std::shared_ptr<ssl::context> MakeContext(const TlsIdentity& identity) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  error_code errors[4];
  // Before 1.2 there is no client that could show a certificate safely.
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1, errors[0]);
  context->use_private_key(buffer(identity.key_and_chain), ssl::context::pem, errors[1]);
  context->use_certificate_chain(buffer(identity.key_and_chain), errors[2]);
  context->add_certificate_authority(buffer(identity.client_ca), errors[3]);
  for (const error_code& error : errors) {
    if (error) return nullptr;
  }
  // As gRPC does: a file that holds no more than the issuing authority is enough.
  X509_STORE_set_flags(SSL_CTX_get_cert_store(context->native_handle()), X509_V_FLAG_PARTIAL_CHAIN);
  SSL_CTX_set_ex_data(context->native_handle(), MarkIndex(), context.get());
  // A session that is resumed would skip the look at the certificate.
  SSL_CTX_set_session_cache_mode(context->native_handle(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context->native_handle(), 0);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  return context;
}

}  // namespace

bool IsOfServerTls(const ssl_st* connection) {
  return SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection), MarkIndex()) != nullptr;
}

HttpPeer PeerOfCertificate(void* x509) {
  HttpPeer peer;
  if (x509 == nullptr) return peer;
  peer.has_certificate = true;
  auto* names =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(static_cast<X509*>(x509), NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI && name->type != GEN_DNS) continue;
    const ASN1_IA5STRING* text = name->type == GEN_URI ? name->d.uniformResourceIdentifier : name->d.dNSName;
    auto& list = name->type == GEN_URI ? peer.uris : peer.dns_names;
    list.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                      static_cast<size_t>(ASN1_STRING_length(text)));
  }
  GENERAL_NAMES_free(names);
  return peer;
}

ServerTls::ServerTls(std::function<TlsIdentity()> identity, std::function<bool(const HttpPeer&)> admits,
                     std::function<void(std::string reason)> refused)
    : identity_(std::move(identity)), admits_(std::move(admits)), refused_(std::move(refused)) {}

void ServerTls::OnFailedHandshake(const ssl_st* connection, int openssl_error) const {
  // `admits` knows of those it refused.
  if (SSL_get_verify_result(connection) == X509_V_ERR_APPLICATION_VERIFICATION) return;
  const char* const reason = ERR_reason_error_string(static_cast<unsigned long>(openssl_error));
  refused_(reason == nullptr ? "unknown" : reason);
}

std::shared_ptr<ssl::context> ServerTls::Context() {
  std::lock_guard lock(mutex_);
  TlsIdentity identity = identity_();
  if (identity.generation == generation_) return context_;
  generation_ = identity.generation;
  std::shared_ptr<ssl::context> renewed = MakeContext(identity);
  if (renewed == nullptr) {
    Log(LogLevel::kWarning, "the web server cannot use the files of TLS, so those before are used");
    return context_;
  }
  context_ = std::move(renewed);
  context_->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  context_->set_verify_callback([admits = admits_](bool verified, ssl::verify_context& verification) {
    X509_STORE_CTX* store = verification.native_handle();
    if (!verified || X509_STORE_CTX_get_error_depth(store) != 0) return verified;
    const bool is_admitted = admits(PeerOfCertificate(X509_STORE_CTX_get_current_cert(store)));
    if (!is_admitted) X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return is_admitted;
  });
  return context_;
}

}  // namespace stackd

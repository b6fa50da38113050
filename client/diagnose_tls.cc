#include "client/diagnose_tls.h"

#include <netdb.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "daemon/base/fd.h"

namespace stackd {
namespace {

constexpr timeval kPatience{.tv_sec = 2, .tv_usec = 0};

using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using Session = std::unique_ptr<SSL, decltype(&SSL_free)>;

struct HostPort {
  std::string host;
  std::string port;
};

HostPort Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {};
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, address.substr(colon + 1)};
}

Fd Connect(const HostPort& to) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found) != 0) return Fd();
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Fd fd(socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
    if (connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0) return fd;
  }
  return Fd();
}

bool HasExpired(const SSL* session) {
  const X509* certificate = SSL_get_certificate(session);
  return certificate != nullptr && X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
}

// gRPC's servers hang up without saying why.
std::string OfOwnCertificate(const DaemonAddress& daemon, const SSL* session) {
  if (daemon.tls_cert.empty()) return "the daemon asks for a certificate: give --tls-cert and --tls-key";
  if (HasExpired(session)) return "the certificate " + daemon.tls_cert + " has expired";
  return "the daemon does not accept the certificate " + daemon.tls_cert +
         ": is it of an authority in the daemon's --tls-client-ca? The log of the daemon says more";
}

std::string OfDaemonCertificate(const DaemonAddress& daemon, long verdict) {
  const std::string trusted = daemon.tls_ca.empty() ? "the system's authorities" : daemon.tls_ca;
  switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "the certificate of the daemon has expired";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "the certificate of the daemon is not for " + Split(daemon.address).host +
             ": give the address by a name that is in it";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return "the certificate of the daemon is not of " + trusted + ": give its authority with --tls-ca";
    default:
      return std::string("the certificate of the daemon is not accepted: ") + X509_verify_cert_error_string(verdict);
  }
}

Context NewContext(const DaemonAddress& daemon) {
  Context context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (daemon.tls_ca.empty()) {
    SSL_CTX_set_default_verify_paths(context.get());
  } else {
    SSL_CTX_load_verify_locations(context.get(), daemon.tls_ca.c_str(), nullptr);
  }
  if (!daemon.tls_cert.empty()) {
    SSL_CTX_use_certificate_chain_file(context.get(), daemon.tls_cert.c_str());
    SSL_CTX_use_PrivateKey_file(context.get(), daemon.tls_key.c_str(), SSL_FILETYPE_PEM);
  }
  // gRPC's servers take no other protocol.
  static constexpr unsigned char kH2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kH2, sizeof(kH2));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  return context;
}

void ExpectName(SSL* session, const std::string& host) {
  SSL_set_tlsext_host_name(session, host.c_str());
  X509_VERIFY_PARAM* wanted = SSL_get0_param(session);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) != 1) X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), 0);
}

}  // namespace

std::string DiagnoseTls(const DaemonAddress& daemon) {
  if (daemon.is_unix()) return {};
  const HostPort to = Split(daemon.address);
  const Fd fd = Connect(to);
  if (!fd.valid()) return {};
  // The daemon may hang up while this still writes.
  signal(SIGPIPE, SIG_IGN);
  const Context context = NewContext(daemon);
  const Session session(SSL_new(context.get()), SSL_free);
  ExpectName(session.get(), to.host);
  SSL_set_fd(session.get(), fd.get());
  const bool shook_hands = SSL_connect(session.get()) == 1;
  if (!daemon.has_tls()) {
    return shook_hands ? "the daemon speaks TLS there: give --tls-ca, --tls-cert and --tls-key" : "";
  }
  if (!shook_hands) return "the daemon does not speak TLS there: leave out --tls-ca and --tls-cert";
  if (const long verdict = SSL_get_verify_result(session.get()); verdict != X509_V_OK) {
    return OfDaemonCertificate(daemon, verdict);
  }
  // In TLS 1.3 the daemon looks at the client's certificate when the client has done its part; then it speaks first.
  char byte;
  return SSL_read(session.get(), &byte, 1) == 1 ? "" : OfOwnCertificate(daemon, session.get());
}

std::string FaultOfTlsFiles(const DaemonAddress& daemon) {
  if (!daemon.has_tls()) return {};
  for (const std::string* file : {&daemon.tls_ca, &daemon.tls_cert, &daemon.tls_key}) {
    if (!file->empty() && access(file->c_str(), R_OK) != 0) return "cannot read " + *file + ": " + strerror(errno);
  }
  const Context context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (!daemon.tls_ca.empty() && SSL_CTX_load_verify_locations(context.get(), daemon.tls_ca.c_str(), nullptr) != 1) {
    return "--tls-ca " + daemon.tls_ca + ": there is no certificate in PEM in it";
  }
  if (daemon.tls_cert.empty()) return {};
  if (SSL_CTX_use_certificate_chain_file(context.get(), daemon.tls_cert.c_str()) != 1) {
    return "--tls-cert " + daemon.tls_cert + ": this is no certificate in PEM";
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), daemon.tls_key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return "--tls-key " + daemon.tls_key + ": this is no private key in PEM, or not that of " + daemon.tls_cert;
  }
  return {};
}

}  // namespace stackd

// Why no TLS connection came about, in words: gRPC says it in OpenSSL's.
#pragma once

#include <string>

namespace stackd {

// Where a daemon is, and what it takes to talk to it.
struct DaemonAddress {
  std::string address;  // "unix:PATH" or "HOST:PORT"
  // Files, as in Options. All empty: no TLS. A Unix socket has none.
  std::string tls_ca = {};
  std::string tls_cert = {};
  std::string tls_key = {};

  bool is_unix() const { return address.starts_with("unix:"); }
  bool has_tls() const { return !is_unix() && (!tls_ca.empty() || !tls_cert.empty()); }
};

// Connects once more, by itself. Empty if TLS is not what is in the way; else a sentence with the way out.
std::string DiagnoseTls(const DaemonAddress& daemon);

// The fault of a file that cannot be read or is not what it should be; empty if there is none.
std::string FaultOfTlsFiles(const DaemonAddress& daemon);

}  // namespace stackd

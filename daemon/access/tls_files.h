// The files of mutual TLS.
#pragma once

#include <string>

#include "daemon/base/result.h"

namespace stackd {

struct TlsFiles {
  std::string cert;       // chain, PEM; empty: no TLS
  std::string key;        // of the first certificate in it
  std::string client_ca;  // whose client certificates are accepted

  bool empty() const { return cert.empty(); }
};

// Fails with one sentence that names the file: gRPC would start, and refuse every caller without a word.
Result<void> CheckTlsFiles(const TlsFiles& files);

}  // namespace stackd

// The files of mutual TLS, kept in step: gRPC is given a key and a certificate that fit each other, at any moment.
//
// gRPC 1.51 takes what it finds in its files each second. A key that was renewed a moment before its certificate makes it
// refuse every connection until both are there.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/access/each_second.h"
#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace stackd {

struct TlsFiles {
  std::string cert;       // chain, PEM; empty: no TLS
  std::string key;        // of the first certificate in it
  std::string client_ca;  // whose client certificates are accepted

  bool empty() const { return cert.empty(); }
};

class TlsFeed {
 public:
  // Reads the files, now and whenever they change. Fails with one sentence that names the file. Later faults change nothing
  // and are logged.
  static Result<std::unique_ptr<TlsFeed>> Start(const TlsFiles& files);

  struct Pem {
    std::string cert, key, client_ca;
    bool operator==(const Pem&) const = default;
  };
  // What holds now, and a number that changes with it. Thread-safe.
  std::pair<int64_t, Pem> Current() const;

  // Paths for gRPC to read: key and chain in one file, and the certificate authorities.
  std::string identity_path() const;
  std::string client_ca_path() const;

 private:
  explicit TlsFeed(TlsFiles files) : files_(std::move(files)) {}
  Result<Pem> Read() const;
  Result<void> Check(const Pem& pem) const;
  Result<void> Give(const Pem& pem);
  // Whether there was something new.
  Result<bool> ReadAndGive();
  void LookAgain();

  const TlsFiles files_;
  // What was given, or has a fault and need not be looked at again. Not what could not be handed on.
  Pem seen_;
  Fd identity_, client_ca_;
  mutable std::mutex mutex_;  // of the two below
  int64_t generation_ = 0;
  Pem given_;
  std::string last_fault_;
  std::unique_ptr<EachSecond> each_second_;
};

}  // namespace stackd

#include "daemon/access/tls_files.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "daemon/config/yaml_reader.h"
#include "daemon/log/log.h"

namespace stackd {
namespace {

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

Bio Bytes(const std::string& pem) { return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free); }

Certificate FirstCertificate(const std::string& pem) {
  return Certificate(PEM_read_bio_X509(Bytes(pem).get(), nullptr, nullptr, nullptr), X509_free);
}

// Refuses a key with a passphrase: a daemon has no user to ask for it.
int NoPassphrase(char*, int, int, void*) { return 0; }

std::unexpected<Status> Fault(const std::string& flag, const std::string& file, const std::string& what) {
  ERR_clear_error();
  return Error(Code::kInvalidArgument, flag + " " + file + ": " + what);
}

// A new file in memory each time: one that is read while it is written would be half old and half new.
Result<Fd> InMemory(const std::string& bytes, int64_t generation) {
  Fd fd(memfd_create("stackd-tls", MFD_CLOEXEC));
  // gRPC looks whether a file changed while it read, by its time in seconds.
  const timespec time{.tv_sec = generation, .tv_nsec = 0};
  const timespec times[] = {time, time};
  if (!fd.valid() || write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
      futimens(fd.get(), times) != 0) {
    return Error(Code::kUnavailable, std::string("cannot keep the files of TLS in memory: ") + strerror(errno));
  }
  return fd;
}

// Replaces the file that the fd number refers to, atomically.
Result<void> Replace(Fd* fd, Fd by) {
  if (!fd->valid()) {
    *fd = std::move(by);
  } else if (dup3(by.get(), fd->get(), O_CLOEXEC) < 0) {
    return Error(Code::kUnavailable, std::string("cannot replace the files of TLS: ") + strerror(errno));
  }
  return {};
}

std::string PathOf(const Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

}  // namespace

Result<TlsFeed::Pem> TlsFeed::Read() const {
  Pem pem;
  const struct {
    const char* flag;
    const std::string& file;
    std::string* text;
  } all[] = {{"--tls-cert", files_.cert, &pem.cert},
             {"--tls-key", files_.key, &pem.key},
             {"--tls-client-ca", files_.client_ca, &pem.client_ca}};
  for (const auto& [flag, file, text] : all) {
    Result<std::string> read = ReadConfigFile(file);
    if (!read) return Error(Code::kInvalidArgument, std::string(flag) + " " + read.error().message);
    *text = std::move(*read);
  }
  return pem;
}

Result<void> TlsFeed::Check(const Pem& pem) const {
  const Certificate certificate = FirstCertificate(pem.cert);
  if (certificate == nullptr) return Fault("--tls-cert", files_.cert, "this is no certificate chain in PEM");
  const Key key(PEM_read_bio_PrivateKey(Bytes(pem.key).get(), nullptr, NoPassphrase, nullptr), EVP_PKEY_free);
  if (key == nullptr) return Fault("--tls-key", files_.key, "this is no private key in PEM");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Fault("--tls-key", files_.key, "this is not the key of " + files_.cert);
  }
  if (FirstCertificate(pem.client_ca) == nullptr) {
    return Fault("--tls-client-ca", files_.client_ca, "there is no certificate in PEM in it");
  }
  // No fault: it may be renewed any moment, and crashes are captured meanwhile.
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    Log(LogLevel::kWarning, "the certificate has expired: callers will not accept it", {{"file", files_.cert}});
  }
  return {};
}

Result<void> TlsFeed::Give(const Pem& pem) {
  const int64_t generation = generation_ + 1;
  Result<Fd> identity = InMemory(pem.key + "\n" + pem.cert, generation);
  Result<Fd> client_ca = InMemory(pem.client_ca, generation);
  if (!identity) return std::unexpected(identity.error());
  if (!client_ca) return std::unexpected(client_ca.error());
  {
    std::lock_guard lock(mutex_);
    generation_ = generation;
    given_ = pem;
  }
  if (Result<void> replaced = Replace(&identity_, std::move(*identity)); !replaced) return replaced;
  return Replace(&client_ca_, std::move(*client_ca));
}

std::pair<int64_t, TlsFeed::Pem> TlsFeed::Current() const {
  std::lock_guard lock(mutex_);
  return {generation_, given_};
}

Result<bool> TlsFeed::ReadAndGive() {
  Result<Pem> pem = Read();
  if (!pem) return std::unexpected(pem.error());
  if (*pem == seen_) return false;
  if (Result<void> fit = Check(*pem); !fit) {
    seen_ = std::move(*pem);
    return std::unexpected(fit.error());
  }
  if (Result<void> given = Give(*pem); !given) return std::unexpected(given.error());
  seen_ = std::move(*pem);
  return true;
}

Result<std::unique_ptr<TlsFeed>> TlsFeed::Start(const TlsFiles& files) {
  std::unique_ptr<TlsFeed> feed(new TlsFeed(files));
  if (Result<bool> given = feed->ReadAndGive(); !given) return std::unexpected(given.error());
  feed->each_second_ = std::make_unique<EachSecond>([feed = feed.get()] { feed->LookAgain(); });
  return feed;
}

std::string TlsFeed::identity_path() const { return PathOf(identity_); }
std::string TlsFeed::client_ca_path() const { return PathOf(client_ca_); }

void TlsFeed::LookAgain() {
  const Result<bool> given = ReadAndGive();
  if (given && *given) Log(LogLevel::kInfo, "the files of TLS have changed, and are used from now on");
  if (!given && given.error().message != last_fault_) {
    Log(LogLevel::kWarning, "the files of TLS have a fault, so those before are used", {{"err", given.error().message}});
  }
  last_fault_ = given ? "" : given.error().message;
}

}  // namespace stackd

// The files of TLS while they change under a running daemon, by real keys and certificates.
#include "daemon/access/tls_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "daemon/log/log.h"

namespace stackd {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr long kDaySeconds = 24 * 60 * 60;

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

// What `write` puts into it.
std::string Pem(const std::function<int(BIO*)>& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> memory(BIO_new(BIO_s_mem()), BIO_free);
  EXPECT_EQ(write(memory.get()), 1);
  char* bytes = nullptr;
  const long size_bytes = BIO_get_mem_data(memory.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size_bytes));
}

struct Identity {
  std::string key, certificate;
};

Identity MakeIdentity(const char* name, long valid_for_days = 1) {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const Certificate certificate(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -2 * kDaySeconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), valid_for_days * kDaySeconds);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  return {
      .key = Pem([&](BIO* bio) { return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr); }),
      .certificate = Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); })};
}

std::string KeyWithPassphrase() {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  unsigned char passphrase[] = "secret";
  return Pem([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key.get(), EVP_aes_128_cbc(), passphrase, 6, nullptr, nullptr);
  });
}

// What this process writes to stderr, to be read while it writes.
class WrittenLog {
 public:
  WrittenLog() : file_(memfd_create("log", MFD_CLOEXEC)), stderr_(dup(STDERR_FILENO)) {
    dup2(file_.get(), STDERR_FILENO);
    StartLog(LogFormat::kJson, LogLevel::kInfo);
  }
  ~WrittenLog() { dup2(stderr_.get(), STDERR_FILENO); }

  std::string Text() const {
    std::string text(1 << 20, '\0');
    const ssize_t size_bytes = pread(file_.get(), text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(size_bytes, 0)));
    return text;
  }
  size_t Count(const std::string& part) const {
    const std::string text = Text();
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
  }

 private:
  Fd file_, stderr_;
};

// Leaves one number for another file, while it lives.
class OneMoreFile {
 public:
  OneMoreFile() {
    getrlimit(RLIMIT_NOFILE, &before_);
    // The smaller ones that are free count, too.
    int last = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      last = std::max(last, std::stoi(entry.path().filename()));
    }
    do {
      filled_.emplace_back(dup(STDERR_FILENO));
    } while (filled_.back().get() <= last);
    filled_.pop_back();
    const rlimit limit{.rlim_cur = static_cast<rlim_t>(last) + 2, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~OneMoreFile() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
  std::vector<Fd> filled_;
};

class TlsFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/stackd_tls_XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
    files_ = {.cert = dir_ + "/tls.crt", .key = dir_ + "/tls.key", .client_ca = dir_ + "/ca.crt"};
    Write(files_.cert, first_.certificate);
    Write(files_.key, first_.key);
    Write(files_.client_ca, authority_.certificate);
  }
  void TearDown() override {
    feed_.reset();
    std::filesystem::remove_all(dir_);
  }

  void Start() {
    auto started = TlsFeed::Start(files_);
    ASSERT_TRUE(started.has_value()) << started.error().message;
    feed_ = std::move(*started);
  }
  std::string FaultAtStart() {
    auto started = TlsFeed::Start(files_);
    return started ? "none" : started.error().message;
  }

  // As what renews certificates does: the file is there whole, or as it was.
  void Write(const std::string& file, const std::string& text) {
    std::ofstream(file + ".new") << text;
    std::filesystem::rename(file + ".new", file);
  }
  static std::string Read(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  std::string Given() const { return Read(feed_->identity_path()); }
  static std::string Joined(const Identity& identity) { return identity.key + "\n" + identity.certificate; }

  bool Eventually(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  bool IsTold(const std::string& what) {
    return Eventually([&] { return log_.Count(what) > 0; });
  }

  WrittenLog log_;
  std::string dir_;
  TlsFiles files_;
  const Identity first_ = MakeIdentity("first"), second_ = MakeIdentity("second"), authority_ = MakeIdentity("ca");
  std::unique_ptr<TlsFeed> feed_;
};

TEST_F(TlsFilesTest, AreGivenAsOneIdentityAndTheAuthorities) {
  Start();
  EXPECT_EQ(Given(), Joined(first_));
  EXPECT_EQ(Read(feed_->client_ca_path()), authority_.certificate);
}

TEST_F(TlsFilesTest, AreRefusedAtTheStartWithTheNameOfTheFileThatIsAtFault) {
  const std::string fit_key = first_.key;
  Write(files_.key, second_.key);
  EXPECT_EQ(FaultAtStart(), "--tls-key " + files_.key + ": this is not the key of " + files_.cert);
  Write(files_.key, "nonsense");
  EXPECT_EQ(FaultAtStart(), "--tls-key " + files_.key + ": this is no private key in PEM");
  Write(files_.key, KeyWithPassphrase());
  EXPECT_EQ(FaultAtStart(), "--tls-key " + files_.key + ": this is no private key in PEM");
  Write(files_.key, "");
  EXPECT_THAT(FaultAtStart(), HasSubstr("this is no private key in PEM"));
  std::filesystem::remove(files_.key);
  EXPECT_EQ(FaultAtStart(), "--tls-key " + files_.key + ": cannot be read");
  Write(files_.key, fit_key);
  Write(files_.cert, first_.certificate.substr(0, first_.certificate.size() / 2));
  EXPECT_EQ(FaultAtStart(), "--tls-cert " + files_.cert + ": this is no certificate chain in PEM");
  Write(files_.cert, first_.certificate);
  Write(files_.client_ca, authority_.key);
  EXPECT_EQ(FaultAtStart(), "--tls-client-ca " + files_.client_ca + ": there is no certificate in PEM in it");
  Write(files_.client_ca, authority_.certificate);
  EXPECT_EQ(FaultAtStart(), "none");
}

TEST_F(TlsFilesTest, MayHaveExpiredAndThatIsSaid) {
  const Identity expired = MakeIdentity("expired", /*valid_for_days=*/-1);
  Write(files_.cert, expired.certificate);
  Write(files_.key, expired.key);
  Start();
  EXPECT_EQ(Given(), Joined(expired));
  EXPECT_THAT(log_.Text(), HasSubstr("the certificate has expired"));
}

TEST_F(TlsFilesTest, AreRenewedWhenKeyAndCertificateFitAndNotBefore) {
  Start();
  const std::string path = feed_->identity_path();
  Write(files_.key, second_.key);
  ASSERT_TRUE(IsTold("this is not the key of")) << log_.Text();
  EXPECT_EQ(Given(), Joined(first_));
  Write(files_.cert, second_.certificate);
  EXPECT_TRUE(Eventually([&] { return Given() == Joined(second_); })) << log_.Text();
  EXPECT_TRUE(IsTold("the files of TLS have changed, and are used from now on"));
  EXPECT_EQ(log_.Count("this is not the key of"), 1u);
  // gRPC was given its name once and for all.
  EXPECT_EQ(feed_->identity_path(), path);
}

TEST_F(TlsFilesTest, OfClientAuthoritiesAreRenewedToo) {
  Start();
  const std::string both = authority_.certificate + second_.certificate;
  Write(files_.client_ca, both);
  EXPECT_TRUE(Eventually([&] { return Read(feed_->client_ca_path()) == both; })) << log_.Text();
  EXPECT_EQ(Given(), Joined(first_));
}

TEST_F(TlsFilesTest, ThatAreMissingOrGarbledLaterChangeNothingAndThatIsSaidOnce) {
  Start();
  std::filesystem::remove(files_.cert);
  ASSERT_TRUE(IsTold("tls.crt: cannot be read")) << log_.Text();
  // It is looked for each second.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < end) ASSERT_EQ(Given(), Joined(first_));
  EXPECT_EQ(log_.Count("cannot be read"), 1u);
  Write(files_.cert, "nonsense");
  ASSERT_TRUE(IsTold("this is no certificate chain in PEM")) << log_.Text();
  EXPECT_EQ(Given(), Joined(first_));
  Write(files_.client_ca, "");
  Write(files_.cert, first_.certificate);
  ASSERT_TRUE(IsTold("there is no certificate in PEM in it")) << log_.Text();
  EXPECT_EQ(Read(feed_->client_ca_path()), authority_.certificate);
  EXPECT_THAT(log_.Text(), Not(HasSubstr("are used from now on")));

  // Until all fit again.
  Write(files_.client_ca, authority_.certificate);
  Write(files_.key, second_.key);
  Write(files_.cert, second_.certificate);
  EXPECT_TRUE(Eventually([&] { return Given() == Joined(second_); })) << log_.Text();
}

TEST_F(TlsFilesTest, ThatCouldNotBeHandedOnAreTriedAgain) {
  Start();
  std::ofstream(dir_ + "/key") << second_.key;
  std::ofstream(dir_ + "/crt") << second_.certificate;
  {
    // They can be read one by one, but not kept.
    const OneMoreFile limit;
    std::filesystem::rename(dir_ + "/key", files_.key);
    std::filesystem::rename(dir_ + "/crt", files_.cert);
    ASSERT_TRUE(IsTold("cannot keep the files of TLS in memory: Too many open files")) << log_.Text();
    EXPECT_EQ(log_.Count("are used from now on"), 0u);
  }
  EXPECT_TRUE(Eventually([&] { return Given() == Joined(second_); })) << log_.Text();
  EXPECT_TRUE(IsTold("are used from now on"));
}

}  // namespace
}  // namespace stackd

#include "daemon/serve/role_verifier.h"

#include <string>
#include <utility>
#include <vector>

namespace stackd {
namespace {

using Request = grpc::experimental::TlsCustomVerificationCheckRequest;

std::vector<std::string> Texts(const std::vector<grpc::string_ref>& names) {
  std::vector<std::string> texts;
  for (const grpc::string_ref& name : names) texts.emplace_back(name.data(), name.size());
  return texts;
}

class RoleVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit RoleVerifier(std::function<bool(const Peer&)> has_role) : has_role_(std::move(has_role)) {}

  bool Verify(Request* request, std::function<void(grpc::Status)>, grpc::Status* sync_status) override {
    const Peer peer{.has_certificate = true, .uris = Texts(request->uri_names()), .dns_names = Texts(request->dns_names())};
    if (!has_role_(peer)) *sync_status = {grpc::StatusCode::PERMISSION_DENIED, "the certificate has no role"};
    return true;
  }
  void Cancel(Request*) override {}

 private:
  const std::function<bool(const Peer&)> has_role_;
};

}  // namespace

std::shared_ptr<grpc::experimental::CertificateVerifier> MakeRoleVerifier(std::function<bool(const Peer&)> has_role) {
  return grpc::experimental::ExternalCertificateVerifier::Create<RoleVerifier>(std::move(has_role));
}

}  // namespace stackd

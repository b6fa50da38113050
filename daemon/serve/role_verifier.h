// Refuses a certificate without a role at the end of the handshake: before a frame of HTTP/2 is read from its holder.
#pragma once

#include <grpcpp/security/tls_certificate_verifier.h>

#include <functional>
#include <memory>

#include "daemon/access/access_rules.h"

namespace stackd {

// `has_role`: whether the holder of a certificate, which the client authority has signed, may do anything now. It is
// called on gRPC's threads, for as long as there is a connection.
std::shared_ptr<grpc::experimental::CertificateVerifier> MakeRoleVerifier(std::function<bool(const Peer&)> has_role);

}  // namespace stackd

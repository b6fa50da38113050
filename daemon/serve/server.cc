#include "daemon/serve/server.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "daemon/access/access_control.h"
#include "daemon/access/each_second.h"
#include "daemon/base/clock.h"
#include "daemon/log/log.h"
#include "daemon/serve/guard/guarded_service.h"
#include "daemon/serve/health/health.h"
#include "daemon/serve/net/listen_address.h"
#include "daemon/serve/net/listener.h"
#include "daemon/serve/role_verifier.h"
#include "daemon/serve/service/service.h"
#include "daemon/serve/web/web_front.h"

namespace stackd {
namespace {

// The largest request, a name or two, has a few hundred bytes.
constexpr int kMaxRequestBytes = 256 << 10;
// Threads for reflection, whose calls hold one each; the rest needs none of them.
constexpr int kMaxThreads = 32;
constexpr size_t kMaxBufferBytes = 128u << 20;
constexpr int kMaxStreamsPerConnection = 128;
constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinPingIntervalMs = 10'000;
constexpr int kHandshakeMs = 10'000;
constexpr int kMaxIdleMs = 300'000;
// A connection outlives the certificate it was made with by so much; calls that run are not cut.
constexpr int kMaxAgeMs = 1'800'000;
constexpr unsigned kLookAtTlsFilesSeconds = 1;

// The audit of the server that was started last; gRPC has one log for all.
std::atomic<Audit*> g_audit = nullptr;

void AuditFailedHandshake(Audit* audit, std::string reason) {
  audit->Write(
      {.caller = "unauthenticated", .method = "TLS handshake", .status = "UNAUTHENTICATED", .reason = std::move(reason)},
      MonotonicNs());
}

// What gRPC says when it refuses a certificate, before there is any call: "Handshake failed with fatal error SSL_ERROR_SSL:
// error:0A000086:SSL routines::certificate verify failed."
bool AuditHandshake(std::string_view message) {
  Audit* audit = g_audit;
  if (audit == nullptr || !message.starts_with("Handshake failed")) return false;
  std::string_view reason = message.substr(message.rfind(':') + 1);
  if (reason.ends_with('.')) reason.remove_suffix(1);
  AuditFailedHandshake(audit, std::string(reason));
  return true;
}

void LogOfGrpc(gpr_log_func_args* args) {
  if (AuditHandshake(args->message)) return;
  Log(args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug, "gRPC", {{"err", args->message}});
}

void SetLimits(grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("stackd");
  quota.SetMaxThreads(kMaxThreads);
  quota.Resize(kMaxBufferBytes);
  builder->SetResourceQuota(quota);
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  // Finds those whose machine is gone.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, kMaxAgeMs);
}

// A certificate that has no role ends here; what else it could send before its first call is refused costs memory.
bool AdmitCertificate(AccessControl* access, const Peer& peer) {
  Grant grant = access->file->Current()->For(peer, geteuid());
  if (grant.role != Role::kNone) return true;
  access->audit.Write({.caller = std::move(grant.caller),
                       .method = "TLS handshake",
                       .status = "PERMISSION_DENIED",
                       .reason = "the certificate has no role"},
                      MonotonicNs());
  return false;
}

std::shared_ptr<grpc::ServerCredentials> Credentials(const TlsFeed* tls, AccessControl* access) {
  if (tls == nullptr) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(tls->identity_path(), tls->identity_path(),
                                                                           tls->client_ca_path(), kLookAtTlsFilesSeconds));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(MakeRoleVerifier([access](const Peer& peer) { return AdmitCertificate(access, peer); }));
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

// Others may connect where the rules name others; what they may do is up to the rules.
void SetSocketMode(const std::string& path, const AccessRules& rules) {
  const mode_t mode = rules.NamesOtherUids(geteuid()) ? 0666 : 0600;
  if (chmod(path.c_str(), mode) != 0)
    Log(LogLevel::kWarning, "the mode of the API's socket cannot be set", {{"err", strerror(errno)}});
}

}  // namespace

struct Server::State {
  State(const ServedParts& parts, std::unique_ptr<AccessFile> access_file, Fd unix_socket, const std::string& unix_path)
      : listener(std::move(unix_socket), unix_path), stackd(parts), health(parts.process_health, parts.loops, &listener) {
    access.file = std::move(access_file);
  }
  ~State() {
    Audit* mine = &access.audit;
    g_audit.compare_exchange_strong(mine, nullptr);
  }

  Result<void> StartWeb(ListeningSocket listens, const ServedParts& parts, const std::vector<std::string>& hosts) {
    if (tls != nullptr) {
      web_tls = std::make_unique<ServerTls>(
          [feed = tls.get()] {
            auto [generation, pem] = feed->Current();
            return TlsIdentity{generation, pem.key + "\n" + pem.cert, pem.client_ca};
          },
          [access = &access](const HttpPeer& peer) {
            return AdmitCertificate(access, {.has_certificate = true, .uris = peer.uris, .dns_names = peer.dns_names});
          },
          [audit = &access.audit](std::string reason) { AuditFailedHandshake(audit, std::move(reason)); });
    }
    auto started = WebFront::Start(std::move(listens.fd), &stackd, &access, parts.calls, parts.web, web_tls.get(), hosts);
    if (!started) return std::unexpected(started.error());
    web = std::move(*started);
    web_url = (tls == nullptr ? "http://" : "https://") + listens.address + "/";
    return {};
  }

  AccessControl access;
  std::unique_ptr<TlsFeed> tls;
  Listener listener;
  StackdService stackd;
  GuardedStackd guarded{&stackd, &access, &listener};
  HealthService health;
  std::vector<std::string> addresses;
  std::string web_url;
  std::unique_ptr<ServerTls> web_tls;
  std::unique_ptr<WebFront> web;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<EachSecond> each_second;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() { Drain(0); }

Result<std::unique_ptr<Server>> Server::Start(const ServedParts& parts, const Listening& listening) {
  gpr_set_log_function(LogOfGrpc);
  auto access_file = AccessFile::Open(listening.access_file);
  if (!access_file) return std::unexpected(access_file.error());
  const Result<std::string> socket_path = CheckSocketPath(parts.dir);
  if (!socket_path) return std::unexpected(socket_path.error());
  std::unique_ptr<TlsFeed> tls;
  if (!listening.tls.empty() && (!listening.address.empty() || !listening.web_address.empty())) {
    auto started = TlsFeed::Start(listening.tls);
    if (!started) return std::unexpected(started.error());
    tls = std::move(*started);
  }
  ListeningSocket tcp, web;
  for (const auto& [flag, address, socket] :
       {std::tuple("--listen", &listening.address, &tcp), std::tuple("--web-listen", &listening.web_address, &web)}) {
    if (address->empty()) continue;
    Result<ListeningSocket> listens = ListenAt(flag, *address, /*has_tls=*/tls != nullptr);
    if (!listens) return std::unexpected(listens.error());
    *socket = std::move(*listens);
  }
  Result<Fd> unix_socket = ListenAtPath(*socket_path);
  if (!unix_socket) return std::unexpected(unix_socket.error());

  grpc::EnableDefaultHealthCheckService(false);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto state = std::make_unique<State>(parts, std::move(*access_file), std::move(*unix_socket), *socket_path);
  // At once: callers that find the socket may connect already.
  const auto set_mode = [path = *socket_path](const AccessRules& rules) { SetSocketMode(path, rules); };
  set_mode(*state->access.file->Current());
  state->access.file->OnChange(set_mode);
  grpc::ServerBuilder builder;
  SetLimits(&builder);
  builder.RegisterService(&state->guarded);
  builder.RegisterService(&state->health);
  if (parts.calls != nullptr) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
    interceptors.push_back(parts.calls->MakeInterceptors());
    builder.experimental().SetInterceptorCreators(std::move(interceptors));
  }
  state->addresses.push_back("unix:" + *socket_path);
  if (tcp.fd.valid()) {
    state->addresses.push_back(tcp.address);
    state->listener.AddTcp(std::move(tcp.fd),
                           builder.experimental().AddExternalConnectionAcceptor(
                               grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
                               Credentials(tls.get(), &state->access)),
                           /*has_tls=*/tls != nullptr);
  }
  state->tls = std::move(tls);
  if (web.fd.valid()) {
    if (Result<void> started = state->StartWeb(std::move(web), parts, listening.web_hosts); !started) {
      return std::unexpected(started.error());
    }
  }
  g_audit = &state->access.audit;
  state->server = builder.BuildAndStart();
  if (state->server == nullptr) return Error(Code::kUnavailable, "gRPC cannot be started; the log says why");
  state->listener.Start(state->server.get(), [file = state->access.file.get()](const UnixPeer& peer) {
    return file->Current()->For({.unix_peer = peer}, geteuid()).role != Role::kNone;
  });
  state->each_second = std::make_unique<EachSecond>([access = &state->access] {
    access->file->Current();
    access->audit.WriteRest(MonotonicNs());
  });
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

const std::vector<std::string>& Server::addresses() const { return state_->addresses; }
const std::string& Server::web_url() const { return state_->web_url; }

void Server::Drain(int64_t timeout_ns) {
  // It may set the mode of the socket, whose place another daemon may have from here on.
  state_->each_second.reset();
  state_->listener.Stop();
  state_->health.Drain();
  state_->stackd.EndStreams();
  const int64_t deadline_ns = MonotonicNs() + timeout_ns;
  state_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::nanoseconds(timeout_ns));
  if (state_->web != nullptr) state_->web->Drain(deadline_ns);
  state_->web.reset();
}

}  // namespace stackd

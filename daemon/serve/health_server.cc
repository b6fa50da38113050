#include "daemon/serve/health_server.h"

#include <grpc/grpc.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>
#include <vector>

#include "daemon/serve/health.h"
#include "daemon/serve/listener.h"
#include "daemon/serve/open_address.h"

namespace stackd {
namespace {

// A request is the name of a service; a few kubelets ask a few times a minute.
constexpr int kMaxRequestBytes = 4 << 10;
constexpr size_t kMaxBufferBytes = 16u << 20;
constexpr int kMaxStreamsPerConnection = 16;
constexpr int kHandshakeMs = 5'000;
constexpr int kMaxIdleMs = 60'000;
constexpr int kKeepaliveMs = 30'000;
constexpr auto kEndAtOnce = std::chrono::milliseconds(100);

// gRPC adds reflection, once it is linked in, to each server.
class WithoutPlugins : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override { plugins->clear(); }
};

void SetLimits(grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("health");
  quota.Resize(kMaxBufferBytes);
  builder->SetResourceQuota(quota);
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
}

}  // namespace

struct HealthServer::State {
  explicit State(const ProcessHealth* process_health) : health(process_health, &listener) {}
  ~State() {
    listener.Stop();
    health.Drain();
    if (server != nullptr) server->Shutdown(std::chrono::system_clock::now() + kEndAtOnce);
  }

  Listener listener{Fd(), ""};
  HealthService health;
  std::string address;
  std::unique_ptr<grpc::Server> server;
};

HealthServer::HealthServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HealthServer::~HealthServer() = default;

Result<std::unique_ptr<HealthServer>> HealthServer::Start(const std::string& listen, const ProcessHealth* process_health,
                                                          RpcMetrics* calls) {
  Result<ListeningSocket> listens = ListenForAnybody("--health-listen", listen);
  if (!listens) return std::unexpected(listens.error());
  auto state = std::make_unique<State>(process_health);
  state->address = listens->address;
  grpc::ServerBuilder builder;
  SetLimits(&builder);
  builder.SetOption(std::make_unique<WithoutPlugins>());
  builder.RegisterService(&state->health);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(calls->MakeInterceptors());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  state->listener.AddTcp(
      std::move(listens->fd),
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials()));
  state->server = builder.BuildAndStart();
  if (state->server == nullptr) return Error(Code::kUnavailable, "gRPC cannot be started; the log says why");
  state->listener.Start(state->server.get());
  return std::unique_ptr<HealthServer>(new HealthServer(std::move(state)));
}

const std::string& HealthServer::address() const { return state_->address; }

void HealthServer::Drain() { state_->health.Drain(); }

}  // namespace stackd

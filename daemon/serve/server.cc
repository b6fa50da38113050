#include "daemon/serve/server.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "daemon/log/log.h"
#include "daemon/serve/health.h"
#include "daemon/serve/listen_address.h"
#include "daemon/serve/service.h"

namespace stackd {
namespace {

// The largest request, a name or two, has a few hundred bytes.
constexpr int kMaxRequestBytes = 1 << 20;
constexpr int kMaxThreads = 64;
constexpr size_t kMaxBufferBytes = 128u << 20;
constexpr int kMaxStreamsPerConnection = 128;
constexpr int kKeepaliveMs = 60'000;

void LogOfGrpc(gpr_log_func_args* args) {
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
  // Finds the watchers whose machine is gone.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  // Else a second daemon would quietly share the port and take half of the calls.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

// New files have mode 0600 at most: the socket must never be open to others, not even between bind and chmod.
class PrivateUmask {
 public:
  PrivateUmask() : before_(umask(0177)) {}
  ~PrivateUmask() { umask(before_); }

 private:
  mode_t before_;
};

}  // namespace

struct Server::State {
  explicit State(const ServedParts& parts) : stackd(parts), health(parts.process_health) {}

  StackdService stackd;
  HealthService health;
  std::vector<std::string> addresses;
  std::unique_ptr<grpc::Server> server;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() { Drain(0); }

Result<std::unique_ptr<Server>> Server::Start(const ServedParts& parts, const std::string& listen) {
  gpr_set_log_function(LogOfGrpc);
  Result<std::string> socket_path = CheckSocketPath(parts.dir);
  if (!socket_path) return std::unexpected(socket_path.error());
  std::string tcp;
  if (!listen.empty()) {
    Result<std::string> address = CheckListenAddress(listen);
    if (!address) return std::unexpected(address.error());
    tcp = *address;
  }

  grpc::EnableDefaultHealthCheckService(false);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto state = std::make_unique<State>(parts);
  grpc::ServerBuilder builder;
  SetLimits(&builder);
  builder.RegisterService(&state->stackd);
  builder.RegisterService(&state->health);
  int unix_bound = 0, tcp_port = 0;
  builder.AddListeningPort("unix:" + *socket_path, grpc::InsecureServerCredentials(), &unix_bound);
  if (!tcp.empty()) builder.AddListeningPort(tcp, grpc::InsecureServerCredentials(), &tcp_port);
  {
    PrivateUmask only_owner;
    state->server = builder.BuildAndStart();
  }
  if (state->server == nullptr || unix_bound == 0) {
    return Error(Code::kUnavailable, "cannot make the socket " + *socket_path + ": is " + parts.dir + " writable?");
  }
  if (!tcp.empty() && tcp_port == 0) return Error(Code::kUnavailable, "cannot listen on " + listen);
  state->addresses.push_back("unix:" + *socket_path);
  if (!tcp.empty()) state->addresses.push_back(tcp.substr(0, tcp.rfind(':') + 1) + std::to_string(tcp_port));
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

const std::vector<std::string>& Server::addresses() const { return state_->addresses; }

void Server::Drain(int64_t timeout_ns) {
  state_->health.Drain();
  state_->stackd.EndStreams();
  state_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::nanoseconds(timeout_ns));
}

}  // namespace stackd

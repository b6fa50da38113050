#include "client/api.h"

#include <grpc/support/log.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "daemon/base/fd.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "stackd/v1/stackd.grpc.pb.h"

namespace stackd {
namespace {

constexpr int64_t kExportTimeoutMs = 30'000;
constexpr int64_t kUnaryTimeoutMs = 15'000;
constexpr std::string_view kUnix = "unix:";

// Why a Unix socket cannot be reached, as the kernel says it; gRPC says it in a paragraph.
std::string UnixConnectError(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return "the path is too long for a socket";
  memcpy(address.sun_path, path.c_str(), path.size());
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return "the connection broke";
  if (errno == ENOENT) return "no such file";
  return strerror(errno);
}

Status CannotConnect(const DaemonAddress& daemon, const std::string& grpc_message) {
  std::string why, advice;
  if (daemon.is_unix()) {
    why = UnixConnectError(daemon.address.substr(kUnix.size()));
    advice = errno == EACCES ? "Run stackctl as the user that stackd runs as."
                             : "Is stackd running? Start it, or say where it is with --address or STACKD_DIR.";
  } else if (const std::string of_tls = DiagnoseTls(daemon); !of_tls.empty()) {
    return {Code::kUnavailable, "cannot connect to " + daemon.address + ": " + of_tls};
  } else {
    why = grpc_message.substr(grpc_message.rfind(": ") == std::string::npos ? 0 : grpc_message.rfind(": ") + 2);
    advice = "Is stackd running with --listen? Say where it is with --address unix:PATH or HOST:PORT.";
  }
  return {Code::kUnavailable, "cannot connect to " + daemon.address + ": " + why + ". " + advice};
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  if (!path.empty()) text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::shared_ptr<grpc::ChannelCredentials> Credentials(const DaemonAddress& daemon) {
  if (!daemon.has_tls()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = ReadFile(daemon.tls_ca),
                               .pem_private_key = ReadFile(daemon.tls_key),
                               .pem_cert_chain = ReadFile(daemon.tls_cert)});
}

// By itself gRPC waits for up to two minutes before it tries a daemon again that was restarted.
grpc::ChannelArguments ConnectsAgainSoon() {
  constexpr int kRetryMs = 1000;
  grpc::ChannelArguments arguments;
  for (const char* name :
       {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS}) {
    arguments.SetInt(name, kRetryMs);
  }
  return arguments;
}

std::string Reason(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return {};
  for (const auto& detail : details.details()) {
    google::rpc::ErrorInfo info;
    if (detail.Is<google::rpc::ErrorInfo>() && detail.UnpackTo(&info)) return info.reason();
  }
  return {};
}

}  // namespace

struct Api::Channel {
  explicit Channel(const DaemonAddress& daemon)
      : fault(FaultOfTlsFiles(daemon)),
        stub(v1::Stackd::NewStub(grpc::CreateCustomChannel(
            daemon.address, fault.empty() ? Credentials(daemon) : grpc::InsecureChannelCredentials(),
            ConnectsAgainSoon()))) {}

  Result<void> Check(const grpc::Status& status, const DaemonAddress& daemon) {
    if (status.ok()) return {};
    std::string reason = Reason(status);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE && reason.empty()) {
      return std::unexpected(CannotConnect(daemon, status.error_message()));
    }
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && reason.empty()) {
      return Error(Code::kDeadlineExceeded, daemon.address + " did not answer in time; give it longer with --timeout");
    }
    return Error(static_cast<Code>(status.error_code()), status.error_message(), reason);
  }

  const std::string fault;  // of a file that TLS needs; no call is made then
  std::unique_ptr<v1::Stackd::Stub> stub;
};

namespace {

void SetTimeout(grpc::ClientContext* context, int64_t timeout_ms) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms));
}

template <typename Response, typename Channel, typename Method, typename Request>
Result<Response> Call(Channel& channel, const DaemonAddress& daemon, int64_t timeout_ms, Method method,
                      const Request& request) {
  if (!channel.fault.empty()) return Error(Code::kUnavailable, channel.fault);
  grpc::ClientContext context;
  SetTimeout(&context, timeout_ms == 0 ? kUnaryTimeoutMs : timeout_ms);
  Response response;
  Result<void> result = channel.Check(((*channel.stub).*method)(&context, request, &response), daemon);
  if (!result) return std::unexpected(result.error());
  return response;
}

template <typename Response, typename Channel, typename Method, typename Request, typename Take>
Result<void> Stream(Channel& channel, const DaemonAddress& daemon, int64_t timeout_ms, Method method,
                    const Request& request, Take take) {
  if (!channel.fault.empty()) return Error(Code::kUnavailable, channel.fault);
  grpc::ClientContext context;
  if (timeout_ms != 0) SetTimeout(&context, timeout_ms);
  auto reader = ((*channel.stub).*method)(&context, request);
  Response response;
  while (reader->Read(&response)) {
    if (!take(response)) {
      context.TryCancel();
      reader->Finish();
      return {};
    }
  }
  return channel.Check(reader->Finish(), daemon);
}

}  // namespace

Api::Api(DaemonAddress daemon, int64_t timeout_ms) : daemon_(std::move(daemon)), timeout_ms_(timeout_ms) {
  // What goes wrong is told in words of our own.
  gpr_set_log_function([](gpr_log_func_args*) {});
  channel_ = std::make_unique<Channel>(daemon_);
}

Api::~Api() = default;

Result<v1::ListProcessesResponse> Api::ListProcesses(const v1::ListProcessesRequest& request) {
  return Call<v1::ListProcessesResponse>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::ListProcesses, request);
}

Result<v1::Process> Api::GetProcess(const v1::GetProcessRequest& request) {
  return Call<v1::Process>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::GetProcess, request);
}

Result<v1::Dump> Api::CreateDump(const v1::CreateDumpRequest& request) {
  return Call<v1::Dump>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::CreateDump, request);
}

Result<v1::Dump> Api::GetDump(const v1::GetDumpRequest& request) {
  return Call<v1::Dump>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::GetDump, request);
}

Result<v1::ListDumpsResponse> Api::ListDumps(const v1::ListDumpsRequest& request) {
  return Call<v1::ListDumpsResponse>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::ListDumps, request);
}

Result<void> Api::DeleteDump(const v1::DeleteDumpRequest& request) {
  auto deleted = Call<google::protobuf::Empty>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::DeleteDump, request);
  if (!deleted) return std::unexpected(deleted.error());
  return {};
}

Result<v1::Dump> Api::ResymbolizeDump(const v1::ResymbolizeDumpRequest& request) {
  return Call<v1::Dump>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::ResymbolizeDump, request);
}

Result<v1::DumpComparison> Api::CompareDumps(const v1::CompareDumpsRequest& request) {
  return Call<v1::DumpComparison>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::CompareDumps, request);
}

Result<v1::ListStackGroupsResponse> Api::ListStackGroups(const v1::ListStackGroupsRequest& request) {
  return Call<v1::ListStackGroupsResponse>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::ListStackGroups, request);
}

Result<v1::CrashGroup> Api::GetStackGroup(const v1::GetStackGroupRequest& request) {
  return Call<v1::CrashGroup>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::GetStackGroup, request);
}

Result<v1::Daemon> Api::GetDaemon() {
  return Call<v1::Daemon>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::GetDaemon, v1::GetDaemonRequest());
}

Result<void> Api::WatchDumps(const v1::WatchDumpsRequest& request, const std::function<bool(const v1::Dump&)>& sink) {
  return Stream<v1::WatchDumpsResponse>(*channel_, daemon_, timeout_ms_, &v1::Stackd::Stub::WatchDumps, request,
                                        [&](const v1::WatchDumpsResponse& response) { return sink(response.dump()); });
}

Result<void> Api::ExportDump(const v1::ExportDumpRequest& request, const std::function<bool(std::string_view)>& sink) {
  // --timeout bounds the capture; what was captured by then is printed whole.
  int64_t timeout_ms = timeout_ms_ == 0 ? 0 : std::max(timeout_ms_, kExportTimeoutMs);
  return Stream<v1::ExportDumpResponse>(*channel_, daemon_, timeout_ms, &v1::Stackd::Stub::ExportDump, request,
                                        [&](const v1::ExportDumpResponse& response) { return sink(response.data()); });
}

}  // namespace stackd

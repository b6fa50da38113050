#include "daemon/serve/web/connect_service.h"

#include <unistd.h>

#include <utility>

#include "daemon/serve/requests/method_of.h"
#include "daemon/serve/requests/rpc_status.h"
#include "daemon/serve/web/connect_export.h"
#include "daemon/serve/web/connect_stream.h"
#include "daemon/serve/web/connect_watch.h"

namespace stackd {
namespace {

// Most of them wait, for a capture or a turn.
constexpr size_t kMaxThreads = 64;
// Threads for callers who have few calls under way.
constexpr size_t kKeptThreads = 8;

grpc::Status InvalidArgument(const std::string& message) { return {grpc::StatusCode::INVALID_ARGUMENT, message}; }

// Why the head of a request is refused; ok: it is not.
grpc::Status CheckHead(const HttpRequest& request) {
  const std::string_view version = request.Field("connect-protocol-version");
  if (!version.empty() && version != "1") return InvalidArgument("Connect-Protocol-Version must be 1");
  for (const char* field : {"content-encoding", "connect-content-encoding"}) {
    const std::string_view encoding = request.Field(field);
    if (encoding.empty() || encoding == "identity") continue;
    return {grpc::StatusCode::UNIMPLEMENTED, "compressed requests are not read here: send them as they are"};
  }
  return grpc::Status::OK;
}

}  // namespace

ConnectService::ConnectService(StackdService* service, AccessControl* access, RpcMetrics* calls)
    : service_(service), access_(access), calls_(calls), threads_(kMaxThreads) {
  AddUnary(&StackdService::ListProcesses);
  AddUnary(&StackdService::GetProcess);
  AddUnary(&StackdService::CreateDump);
  AddUnary(&StackdService::GetDump);
  AddUnary(&StackdService::ListDumps);
  AddUnary(&StackdService::DeleteDump);
  AddUnary(&StackdService::ResymbolizeDump);
  AddUnary(&StackdService::CompareDumps);
  AddUnary(&StackdService::ListStackGroups);
  AddUnary(&StackdService::GetStackGroup);
  AddUnary(&StackdService::GetDaemon);
  routes_["WatchDumps"] = {.is_stream = true, .serve = [this](Incoming incoming) { Watch(std::move(incoming)); }};
  routes_["ExportDump"] = {.is_stream = true, .serve = [this](Incoming incoming) { Export(std::move(incoming)); }};
}

template <typename Request, typename Response>
void ConnectService::AddUnary(ServiceMethod<Request, Response> method) {
  routes_[MethodOf(Request()).name] = {
      .is_stream = false, .serve = [this, method](Incoming incoming) { AnswerUnary(std::move(incoming), method); }};
}

void ConnectService::Serve(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  const auto route = routes_.find(request.Path().substr(kPath.size()));
  if (route == routes_.end()) {
    HttpAnswer answer = ErrorAnswer({grpc::StatusCode::UNIMPLEMENTED, "stackd.v1.Stackd has no such method"});
    answer.status = 404;
    return reply->Send(std::move(answer), nullptr);
  }
  if (request.method != "POST") return reply->Send({405, "", {{"Allow", "POST"}}}, nullptr);
  const auto codec = CodecOf(request.Field("content-type"));
  const bool is_stream = route->second.is_stream;
  if (!codec || codec->is_stream != is_stream) {
    const char* const types =
        is_stream ? "application/connect+json, application/connect+proto" : "application/json, application/proto";
    return reply->Send({415, std::string("Content-Type must be one of ") + types + "\n", {{"Accept-Post", types}}},
                       nullptr);
  }
  grpc::Status fault = CheckHead(request);
  const auto deadline = DeadlineOf(request);
  if (!deadline) fault = InvalidArgument("Connect-Timeout-Ms must be a number of milliseconds, of at most 10 digits");
  if (!fault.ok() && is_stream) return EndStream(reply, *codec, fault);
  if (!fault.ok()) return reply->Send(ErrorAnswer(fault), nullptr);
  route->second.serve({std::move(request), std::move(reply), *codec, *deadline});
}

std::unique_ptr<Call> ConnectService::NewCall(const Incoming& incoming, Call::Method method) {
  auto rules = access_->file->Current();
  Grant grant = CallerOf(incoming.request, *rules);
  const std::string path = std::string(kPath) + method.name;
  auto call = std::make_unique<Call>(access_, std::move(rules), std::move(grant), std::move(method), incoming.deadline);
  if (calls_ != nullptr) {
    call->OnEnd([counted = std::shared_ptr(calls_->Begin(path))](grpc::StatusCode code) { counted->End(code); });
  }
  return call;
}

Grant ConnectService::CallerOf(const HttpRequest& request, const AccessRules& rules) {
  const HttpPeer& peer = request.peer;
  return rules.For({.unix_peer = {},
                    .has_certificate = peer.has_certificate,
                    .uris = peer.uris,
                    .dns_names = peer.dns_names,
                    .is_loopback = peer.is_loopback},
                   geteuid());
}

bool ConnectService::Work(const Call& call, std::function<void()> work) {
  return threads_.Do(std::move(work), call.has_many_at_once() ? kKeptThreads : 0);
}

template <typename Request, typename Response>
void ConnectService::AnswerUnary(Incoming incoming, ServiceMethod<Request, Response> method) {
  const std::shared_ptr<HttpReply> reply = incoming.reply;
  auto request = std::make_shared<Request>();
  const Result<void> parsed = ParseMessage(incoming.codec, incoming.request.body, request.get());
  const std::shared_ptr<Call> call = NewCall(incoming, MethodOf(*request));
  grpc::Status status = call->Admit();
  if (status.ok() && !parsed) status = call->Answered(InvalidArgument(parsed.error().message));
  if (!status.ok()) return reply->Send(ErrorAnswer(status), nullptr);
  const auto work = [this, reply, request, call, method, codec = incoming.codec] {
    Response response;
    const grpc::Status handled = HandleCall(service_, method, access_->page_seal, *call, *request, &response);
    HttpAnswer answer = handled.ok()
                            ? HttpAnswer{200, SerializeMessage(codec, response), {{"Content-Type", codec.ContentType()}}}
                            : ErrorAnswer(handled);
    call->Answered(handled, answer.body.size());
    const std::shared_ptr<void> turn = call->ReleaseTurn();
    // The call ends, and its memory is given back, when the client has read the answer.
    reply->Send(std::move(answer), call);
  };
  if (!Work(*call, work)) reply->Send(ErrorAnswer(call->Answered(TooBusy())), nullptr);
}

void ConnectService::Watch(Incoming incoming) {
  v1::WatchDumpsRequest request;
  const Result<void> parsed = ParseStreamMessage(incoming.codec, incoming.request.body, &request);
  const std::shared_ptr<Call> call = NewCall(incoming, MethodOf(request));
  grpc::Status status = call->Admit();
  if (status.ok() && !parsed) status = call->Answered(InvalidArgument(parsed.error().message));
  if (!status.ok()) return EndStream(incoming.reply, incoming.codec, status);
  // Reads the store, where the stream begins with dumps of before.
  const auto work = [this, request, call, reply = incoming.reply, codec = incoming.codec] {
    auto stream = std::make_shared<ConnectWatch>(call, reply, codec);
    stream->Begin(service_->WatchDumps(request, stream.get()));
  };
  if (!Work(*call, work)) EndStream(incoming.reply, incoming.codec, call->Answered(TooBusy()));
}

void ConnectService::Export(Incoming incoming) {
  auto request = std::make_shared<v1::ExportDumpRequest>();
  const Result<void> parsed = ParseStreamMessage(incoming.codec, incoming.request.body, request.get());
  const std::shared_ptr<Call> call = NewCall(incoming, MethodOf(*request));
  grpc::Status status = call->Admit();
  if (status.ok() && !parsed) status = call->Answered(InvalidArgument(parsed.error().message));
  if (!status.ok()) return EndStream(incoming.reply, incoming.codec, status);
  const auto work = [this, request, call, reply = incoming.reply, codec = incoming.codec] {
    ConnectExport output(reply, codec);
    const grpc::Status made = output.Send([&](const Sink& sink) { return service_->ExportDump(*call, *request, sink); });
    const std::shared_ptr<void> turn = call->ReleaseTurn();
    call->Answered(made);
  };
  if (!Work(*call, work)) EndStream(incoming.reply, incoming.codec, call->Answered(TooBusy()));
}

}  // namespace stackd

#include "daemon/serve/guard/guarded_service.h"

#include <grpc/grpc_security_constants.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "daemon/serve/guard/export_call.h"
#include "daemon/serve/requests/rpc_status.h"

namespace stackd {
namespace {

// Most of them wait, for a capture or a turn.
constexpr size_t kMaxThreads = 256;
// Two callers may have so many calls under way: these threads are for others.
constexpr size_t kKeptThreads = 32;

size_t KeptFrom(const Call& call) { return call.has_many_at_once() ? kKeptThreads : 0; }

class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(UnreadAnswers* unread, grpc::CallbackServerContext* context, std::unique_ptr<Call> call)
      : unread_(unread), context_(context), call_(std::move(call)) {}

  Call& call() { return *call_; }

  // Nothing may be done with it afterwards.
  void End(grpc::Status status) {
    unread_->Add(context_);
    Finish(std::move(status));
  }

  void OnDone() override {
    unread_->Remove(context_);
    delete this;
  }

 private:
  UnreadAnswers* const unread_;
  grpc::CallbackServerContext* const context_;
  const std::unique_ptr<Call> call_;
};

class RefusedWatch final : public grpc::ServerWriteReactor<v1::WatchDumpsResponse> {
 public:
  explicit RefusedWatch(grpc::Status status) { Finish(std::move(status)); }
  void OnDone() override { delete this; }
};

grpc::Status TooBusy() {
  return ToGrpcStatus({Code::kResourceExhausted, "too many calls are under way; try again", "TOO_MANY_CALLS"});
}

std::vector<std::string> Property(const grpc::AuthContext& auth, const char* name) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : auth.FindPropertyValues(name)) values.emplace_back(value.data(), value.size());
  return values;
}

template <typename Message>
size_t MemoryOf(const Message& message) {
  return message.SpaceUsedLong() + message.ByteSizeLong();
}

}  // namespace

GuardedStackd::GuardedStackd(StackdService* service, AccessControl* access, const Listener* listener)
    : service_(service), access_(access), listener_(listener), threads_(kMaxThreads) {}

Peer GuardedStackd::PeerOf(const grpc::CallbackServerContext& context) const {
  const std::string address = context.peer();
  Peer peer{.unix_peer = listener_->PeerOf(address)};
  if (const auto auth = context.auth_context(); auth != nullptr) {
    peer.has_certificate = !auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME).empty();
    peer.uris = Property(*auth, GRPC_PEER_URI_PROPERTY_NAME);
    peer.dns_names = Property(*auth, GRPC_PEER_DNS_PROPERTY_NAME);
  }
  peer.is_loopback = address.starts_with("ipv4:127.") || address.starts_with("ipv6:%5B::1%5D:");
  return peer;
}

std::unique_ptr<Call> GuardedStackd::NewCall(grpc::CallbackServerContext* context, Call::Method method) {
  auto rules = access_->file->Current();
  Grant grant = rules->For(PeerOf(*context), geteuid());
  return std::make_unique<Call>(access_, std::move(rules), std::move(grant), std::move(method), context->deadline());
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* GuardedStackd::Answer(grpc::CallbackServerContext* context, Call::Method method, const Request*,
                                                Response* response, std::function<grpc::Status(Call&)> handle) {
  auto* reactor = new UnaryCall(&unread_, context, NewCall(context, std::move(method)));
  grpc::Status admitted = reactor->call().Admit();
  if (!admitted.ok()) {
    reactor->End(std::move(admitted));
    return reactor;
  }
  const auto work = [reactor, response, handle = std::move(handle)] {
    Call& call = reactor->call();
    grpc::Status status = handle(call);
    status = call.Answered(std::move(status), status.ok() ? MemoryOf(*response) : 0);
    const std::shared_ptr<void> turn = call.ReleaseTurn();
    reactor->End(std::move(status));
  };
  const bool begun = threads_.Do(work, KeptFrom(reactor->call()));
  if (!begun) reactor->End(reactor->call().Answered(TooBusy()));
  return reactor;
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* GuardedStackd::Forward(grpc::CallbackServerContext* context, Call::Method method,
                                                 const Request* request, Response* response,
                                                 Handler<Request, Response> handler) {
  return Answer(context, std::move(method), request, response,
                [this, request, response, handler](Call& call) { return (service_->*handler)(call, *request, response); });
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* GuardedStackd::ForwardList(grpc::CallbackServerContext* context, Call::Method method,
                                                     const Request* request, Response* response,
                                                     Handler<Request, Response> handler) {
  const std::string list = method.name;
  return Answer(context, std::move(method), request, response, [this, list, request, response, handler](Call& call) {
    Request opened = *request;
    if (!request->page_token().empty()) {
      Result<std::string> token = access_->page_seal.Open(call.caller(), list, request->page_token());
      if (!token) return ToGrpcStatus(token.error(), {.field = "page_token"});
      opened.set_page_token(*token);
    }
    grpc::Status status = (service_->*handler)(call, opened, response);
    if (!response->next_page_token().empty()) {
      response->set_next_page_token(access_->page_seal.Close(call.caller(), list, response->next_page_token()));
    }
    return status;
  });
}

grpc::ServerUnaryReactor* GuardedStackd::ListProcesses(grpc::CallbackServerContext* context,
                                                       const v1::ListProcessesRequest* request,
                                                       v1::ListProcessesResponse* response) {
  return ForwardList(context, {.name = "ListProcesses", .role = Role::kRead}, request, response,
                     &StackdService::ListProcesses);
}

grpc::ServerUnaryReactor* GuardedStackd::GetProcess(grpc::CallbackServerContext* context,
                                                    const v1::GetProcessRequest* request, v1::Process* response) {
  return Forward(context, {.name = "GetProcess", .resource = request->name(), .role = Role::kRead}, request, response,
                 &StackdService::GetProcess);
}

grpc::ServerUnaryReactor* GuardedStackd::CreateDump(grpc::CallbackServerContext* context,
                                                    const v1::CreateDumpRequest* request, v1::Dump* response) {
  return Forward(context, {.name = "CreateDump", .resource = request->process(), .role = Role::kDump}, request, response,
                 &StackdService::CreateDump);
}

grpc::ServerUnaryReactor* GuardedStackd::GetDump(grpc::CallbackServerContext* context, const v1::GetDumpRequest* request,
                                                 v1::Dump* response) {
  return Forward(context, {.name = "GetDump", .resource = request->name(), .role = Role::kRead}, request, response,
                 &StackdService::GetDump);
}

grpc::ServerUnaryReactor* GuardedStackd::ListDumps(grpc::CallbackServerContext* context,
                                                   const v1::ListDumpsRequest* request, v1::ListDumpsResponse* response) {
  return ForwardList(context, {.name = "ListDumps", .resource = request->parent(), .role = Role::kRead}, request, response,
                     &StackdService::ListDumps);
}

grpc::ServerUnaryReactor* GuardedStackd::DeleteDump(grpc::CallbackServerContext* context,
                                                    const v1::DeleteDumpRequest* request,
                                                    google::protobuf::Empty* response) {
  return Forward(context, {.name = "DeleteDump", .resource = request->name(), .role = Role::kAdmin}, request, response,
                 &StackdService::DeleteDump);
}

grpc::ServerWriteReactor<v1::WatchDumpsResponse>* GuardedStackd::WatchDumps(grpc::CallbackServerContext* context,
                                                                            const v1::WatchDumpsRequest* request) {
  std::shared_ptr<Call> call =
      NewCall(context, {.name = "WatchDumps", .resource = request->parent(), .role = Role::kRead, .is_stream = true});
  grpc::Status admitted = call->Admit();
  if (!admitted.ok()) return new RefusedWatch(std::move(admitted));
  return service_->WatchDumps(*request, [call](const grpc::Status& status) { call->Answered(status); });
}

grpc::ServerWriteReactor<v1::ExportDumpResponse>* GuardedStackd::ExportDump(grpc::CallbackServerContext* context,
                                                                            const v1::ExportDumpRequest* request) {
  // Registers and stacks as they were copied hold more than names.
  const Role role = request->format() == v1::ExportDumpRequest::MINIDUMP ? Role::kAdmin : Role::kRead;
  const std::string name = role == Role::kAdmin ? "ExportDump as a minidump" : "ExportDump";
  auto* reactor = new ExportCall(
      context, NewCall(context, {.name = name, .resource = request->name(), .role = role, .is_stream = true}));
  grpc::Status admitted = reactor->call().Admit();
  if (!admitted.ok()) {
    reactor->End(std::move(admitted));
    return reactor;
  }
  const auto work = [this, reactor, request] {
    reactor->Send([&](const Sink& sink) { return service_->ExportDump(reactor->call(), *request, sink); });
  };
  const bool begun = threads_.Do(work, KeptFrom(reactor->call()));
  if (!begun) reactor->End(TooBusy());
  return reactor;
}

grpc::ServerUnaryReactor* GuardedStackd::ResymbolizeDump(grpc::CallbackServerContext* context,
                                                         const v1::ResymbolizeDumpRequest* request, v1::Dump* response) {
  return Forward(context, {.name = "ResymbolizeDump", .resource = request->name(), .role = Role::kDump}, request, response,
                 &StackdService::ResymbolizeDump);
}

grpc::ServerUnaryReactor* GuardedStackd::CompareDumps(grpc::CallbackServerContext* context,
                                                      const v1::CompareDumpsRequest* request,
                                                      v1::DumpComparison* response) {
  return Forward(context, {.name = "CompareDumps", .resource = request->after(), .role = Role::kRead}, request, response,
                 &StackdService::CompareDumps);
}

grpc::ServerUnaryReactor* GuardedStackd::ListStackGroups(grpc::CallbackServerContext* context,
                                                         const v1::ListStackGroupsRequest* request,
                                                         v1::ListStackGroupsResponse* response) {
  return ForwardList(context, {.name = "ListStackGroups", .role = Role::kRead}, request, response,
                     &StackdService::ListStackGroups);
}

grpc::ServerUnaryReactor* GuardedStackd::GetStackGroup(grpc::CallbackServerContext* context,
                                                       const v1::GetStackGroupRequest* request, v1::CrashGroup* response) {
  return Forward(context, {.name = "GetStackGroup", .resource = request->name(), .role = Role::kRead}, request, response,
                 &StackdService::GetStackGroup);
}

grpc::ServerUnaryReactor* GuardedStackd::GetDaemon(grpc::CallbackServerContext* context,
                                                   const v1::GetDaemonRequest* request, v1::Daemon* response) {
  return Forward(context, {.name = "GetDaemon", .role = Role::kRead}, request, response, &StackdService::GetDaemon);
}

}  // namespace stackd

#include "daemon/serve/guard/guarded_service.h"

#include <grpc/grpc_security_constants.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "daemon/serve/guard/export_call.h"
#include "daemon/serve/guard/watch_call.h"

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
grpc::ServerUnaryReactor* GuardedStackd::Forward(grpc::CallbackServerContext* context, const Request* request,
                                                 Response* response, ServiceMethod<Request, Response> method) {
  auto* reactor = new UnaryCall(&unread_, context, NewCall(context, MethodOf(*request)));
  grpc::Status admitted = reactor->call().Admit();
  if (!admitted.ok()) {
    reactor->End(std::move(admitted));
    return reactor;
  }
  const auto work = [this, reactor, request, response, method] {
    Call& call = reactor->call();
    grpc::Status status = HandleCall(service_, method, access_->page_seal, call, *request, response);
    status = call.Answered(std::move(status), status.ok() ? MemoryOf(*response) : 0);
    const std::shared_ptr<void> turn = call.ReleaseTurn();
    reactor->End(std::move(status));
  };
  const bool begun = threads_.Do(work, KeptFrom(reactor->call()));
  if (!begun) reactor->End(reactor->call().Answered(TooBusy()));
  return reactor;
}

grpc::ServerUnaryReactor* GuardedStackd::ListProcesses(grpc::CallbackServerContext* context,
                                                       const v1::ListProcessesRequest* request,
                                                       v1::ListProcessesResponse* response) {
  return Forward(context, request, response, &StackdService::ListProcesses);
}

grpc::ServerUnaryReactor* GuardedStackd::GetProcess(grpc::CallbackServerContext* context,
                                                    const v1::GetProcessRequest* request, v1::Process* response) {
  return Forward(context, request, response, &StackdService::GetProcess);
}

grpc::ServerUnaryReactor* GuardedStackd::CreateDump(grpc::CallbackServerContext* context,
                                                    const v1::CreateDumpRequest* request, v1::Dump* response) {
  return Forward(context, request, response, &StackdService::CreateDump);
}

grpc::ServerUnaryReactor* GuardedStackd::GetDump(grpc::CallbackServerContext* context, const v1::GetDumpRequest* request,
                                                 v1::Dump* response) {
  return Forward(context, request, response, &StackdService::GetDump);
}

grpc::ServerUnaryReactor* GuardedStackd::ListDumps(grpc::CallbackServerContext* context,
                                                   const v1::ListDumpsRequest* request, v1::ListDumpsResponse* response) {
  return Forward(context, request, response, &StackdService::ListDumps);
}

grpc::ServerUnaryReactor* GuardedStackd::DeleteDump(grpc::CallbackServerContext* context,
                                                    const v1::DeleteDumpRequest* request,
                                                    google::protobuf::Empty* response) {
  return Forward(context, request, response, &StackdService::DeleteDump);
}

grpc::ServerWriteReactor<v1::WatchDumpsResponse>* GuardedStackd::WatchDumps(grpc::CallbackServerContext* context,
                                                                            const v1::WatchDumpsRequest* request) {
  auto reactor = std::make_unique<WatchCall>(NewCall(context, MethodOf(*request)));
  if (grpc::Status admitted = reactor->call().Admit(); !admitted.ok()) {
    reactor->Finish(std::move(admitted));
  } else {
    reactor->Begin(service_->WatchDumps(*request, reactor.get()));
  }
  return reactor.release();
}

grpc::ServerWriteReactor<v1::ExportDumpResponse>* GuardedStackd::ExportDump(grpc::CallbackServerContext* context,
                                                                            const v1::ExportDumpRequest* request) {
  auto* reactor = new ExportCall(context, NewCall(context, MethodOf(*request)));
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
  return Forward(context, request, response, &StackdService::ResymbolizeDump);
}

grpc::ServerUnaryReactor* GuardedStackd::CompareDumps(grpc::CallbackServerContext* context,
                                                      const v1::CompareDumpsRequest* request,
                                                      v1::DumpComparison* response) {
  return Forward(context, request, response, &StackdService::CompareDumps);
}

grpc::ServerUnaryReactor* GuardedStackd::ListStackGroups(grpc::CallbackServerContext* context,
                                                         const v1::ListStackGroupsRequest* request,
                                                         v1::ListStackGroupsResponse* response) {
  return Forward(context, request, response, &StackdService::ListStackGroups);
}

grpc::ServerUnaryReactor* GuardedStackd::GetStackGroup(grpc::CallbackServerContext* context,
                                                       const v1::GetStackGroupRequest* request, v1::CrashGroup* response) {
  return Forward(context, request, response, &StackdService::GetStackGroup);
}

grpc::ServerUnaryReactor* GuardedStackd::GetDaemon(grpc::CallbackServerContext* context,
                                                   const v1::GetDaemonRequest* request, v1::Daemon* response) {
  return Forward(context, request, response, &StackdService::GetDaemon);
}

}  // namespace stackd

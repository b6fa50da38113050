// stackd.v1.Stackd as it is served: which caller, whether that caller may, how much of it; then StackdService. Every call
// is audited.
#pragma once

#include <memory>
#include <string>

#include "daemon/access/access_control.h"
#include "daemon/serve/guard/handle_call.h"
#include "daemon/serve/guard/unread_answers.h"
#include "daemon/serve/guard/work_threads.h"
#include "daemon/serve/net/listener.h"
#include "daemon/serve/requests/call.h"
#include "daemon/serve/service/service.h"
#include "stackd/v1/stackd.grpc.pb.h"

namespace stackd {

// Answers by callback, so that a caller who does not read the answer holds no thread.
class GuardedStackd final : public v1::Stackd::CallbackService {
 public:
  // All must outlive the server.
  GuardedStackd(StackdService* service, AccessControl* access, const Listener* listener);

  grpc::ServerUnaryReactor* ListProcesses(grpc::CallbackServerContext* context, const v1::ListProcessesRequest* request,
                                          v1::ListProcessesResponse* response) override;
  grpc::ServerUnaryReactor* GetProcess(grpc::CallbackServerContext* context, const v1::GetProcessRequest* request,
                                       v1::Process* response) override;
  grpc::ServerUnaryReactor* CreateDump(grpc::CallbackServerContext* context, const v1::CreateDumpRequest* request,
                                       v1::Dump* response) override;
  grpc::ServerUnaryReactor* GetDump(grpc::CallbackServerContext* context, const v1::GetDumpRequest* request,
                                    v1::Dump* response) override;
  grpc::ServerUnaryReactor* ListDumps(grpc::CallbackServerContext* context, const v1::ListDumpsRequest* request,
                                      v1::ListDumpsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteDump(grpc::CallbackServerContext* context, const v1::DeleteDumpRequest* request,
                                       google::protobuf::Empty* response) override;
  grpc::ServerWriteReactor<v1::WatchDumpsResponse>* WatchDumps(grpc::CallbackServerContext* context,
                                                               const v1::WatchDumpsRequest* request) override;
  grpc::ServerWriteReactor<v1::ExportDumpResponse>* ExportDump(grpc::CallbackServerContext* context,
                                                               const v1::ExportDumpRequest* request) override;
  grpc::ServerUnaryReactor* ResymbolizeDump(grpc::CallbackServerContext* context, const v1::ResymbolizeDumpRequest* request,
                                            v1::Dump* response) override;
  grpc::ServerUnaryReactor* CompareDumps(grpc::CallbackServerContext* context, const v1::CompareDumpsRequest* request,
                                         v1::DumpComparison* response) override;
  grpc::ServerUnaryReactor* ListStackGroups(grpc::CallbackServerContext* context, const v1::ListStackGroupsRequest* request,
                                            v1::ListStackGroupsResponse* response) override;
  grpc::ServerUnaryReactor* GetStackGroup(grpc::CallbackServerContext* context, const v1::GetStackGroupRequest* request,
                                          v1::CrashGroup* response) override;
  grpc::ServerUnaryReactor* GetDaemon(grpc::CallbackServerContext* context, const v1::GetDaemonRequest* request,
                                      v1::Daemon* response) override;

 private:
  std::unique_ptr<Call> NewCall(grpc::CallbackServerContext* context, Call::Method method);
  Peer PeerOf(const grpc::CallbackServerContext& context) const;

  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Forward(grpc::CallbackServerContext* context, const Request* request, Response* response,
                                    ServiceMethod<Request, Response> method);

  StackdService* const service_;
  AccessControl* const access_;
  const Listener* const listener_;
  UnreadAnswers unread_;
  WorkThreads threads_;
};

}  // namespace stackd

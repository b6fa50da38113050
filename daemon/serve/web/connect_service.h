// Every method of the API over HTTP/1.1, by the Connect protocol: what curl and browsers speak. Same roles, limits and
// audit as over gRPC.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/access/access_control.h"
#include "daemon/http/http_message.h"
#include "daemon/metrics/rpc_metrics.h"
#include "daemon/serve/guard/handle_call.h"
#include "daemon/serve/guard/work_threads.h"
#include "daemon/serve/requests/call.h"
#include "daemon/serve/service/service.h"
#include "daemon/serve/web/connect_codec.h"

namespace stackd {

class ConnectService {
 public:
  // `calls`: nullptr: calls are not counted. All must outlive it.
  ConnectService(StackdService* service, AccessControl* access, RpcMetrics* calls);

  // "/stackd.v1.Stackd/": all paths below are its.
  static constexpr std::string_view kPath = "/stackd.v1.Stackd/";

  // Who calls, by the rules of `access`.
  static Grant CallerOf(const HttpRequest& request, const AccessRules& rules);

  // Never blocks. A reply may come on any thread, after this has returned.
  void Serve(HttpRequest request, std::shared_ptr<HttpReply> reply);

 private:
  // A request whose head is right.
  struct Incoming {
    HttpRequest request;
    std::shared_ptr<HttpReply> reply;
    ConnectCodec codec;
    Call::Deadline deadline;
  };
  struct Route {
    bool is_stream;
    std::function<void(Incoming)> serve;
  };

  template <typename Request, typename Response>
  void AddUnary(ServiceMethod<Request, Response> method);
  template <typename Request, typename Response>
  void AnswerUnary(Incoming incoming, ServiceMethod<Request, Response> method);
  void Watch(Incoming incoming);
  void Export(Incoming incoming);

  std::unique_ptr<Call> NewCall(const Incoming& incoming, Call::Method method);
  // False when there is no thread for it.
  bool Work(const Call& call, std::function<void()> work);

  StackdService* const service_;
  AccessControl* const access_;
  RpcMetrics* const calls_;
  std::map<std::string, Route, std::less<>> routes_;  // by method: "GetDump"
  WorkThreads threads_;
};

}  // namespace stackd

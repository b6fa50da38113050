// What --web-listen serves: the page for a browser, and the API as JSON below it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/access/access_control.h"
#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/http/http_server.h"
#include "daemon/http/pages.h"
#include "daemon/http/server_tls.h"
#include "daemon/metrics/rpc_metrics.h"
#include "daemon/serve/service/service.h"
#include "daemon/serve/web/browser_check.h"
#include "daemon/serve/web/connect_service.h"

namespace stackd {

class WebFront {
 public:
  // `calls`: nullptr: calls are not counted. `tls`: nullptr for none. Names in `hosts`: see BrowserCheck. All pointers must
  // outlive it. Fails with one sentence.
  static Result<std::unique_ptr<WebFront>> Start(Fd listening, StackdService* service, AccessControl* access,
                                                 RpcMetrics* calls, HttpCounters* counters, ServerTls* tls,
                                                 std::vector<std::string> hosts);

  // Accepts nothing more, and waits until what was asked is answered, or until the deadline.
  void Drain(int64_t deadline_ns) { server_->Drain(deadline_ns); }

 private:
  WebFront(StackdService* service, AccessControl* access, RpcMetrics* calls, std::vector<std::string> hosts);

  void Serve(HttpRequest request, const std::shared_ptr<HttpReply>& reply);
  void Refuse(const HttpRequest& request, const std::string& why, HttpReply* reply);

  AccessControl* const access_;
  const BrowserCheck check_;
  const HttpPages pages_;
  ConnectService connect_;
  // Ends first: its handler uses the rest.
  std::unique_ptr<HttpServer> server_;
};

}  // namespace stackd

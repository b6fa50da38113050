#include "daemon/serve/web/web_front.h"

#include <utility>

#include "daemon/base/clock.h"
#include "daemon/serve/requests/rpc_status.h"
#include "daemon/serve/web/page_files.h"

namespace stackd {
namespace {

constexpr size_t kMaxConnections = 64;
constexpr uint64_t kMaxBodyBytes = 64 << 10;
// A dump of 4 MiB is several times that as JSON, and a port-forward may be slow.
constexpr int64_t kAnswerMs = 120'000;

// Nothing that the page loads, calls or is framed by may be of another site.
const HttpFields& SecurityFields() {
  static const HttpFields fields = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
      {"Cache-Control", "no-store"},
  };
  return fields;
}

HttpPages PagesOfFiles() {
  HttpPages pages;
  for (const PageFile& file : PageFiles()) {
    pages[std::string(file.path)] = {std::string(file.content_type),
                                     [&file](const std::string&) { return HttpAnswer{200, std::string(file.bytes)}; }};
  }
  return pages;
}

}  // namespace

WebFront::WebFront(StackdService* service, AccessControl* access, RpcMetrics* calls, std::vector<std::string> hosts)
    : access_(access), check_{.hosts = std::move(hosts)}, pages_(PagesOfFiles()), connect_(service, access, calls) {}

void WebFront::Refuse(const HttpRequest& request, const std::string& why, HttpReply* reply) {
  Grant grant = ConnectService::CallerOf(request, *access_->file->Current());
  access_->audit.Write({.caller = std::move(grant.caller),
                        .role = grant.role,
                        .method = "HTTP request",
                        .status = "PERMISSION_DENIED",
                        .reason = "OTHER_SITE"},
                       MonotonicNs());
  reply->Send(ErrorAnswer(ToGrpcStatus({Code::kPermissionDenied, why, "OTHER_SITE"})), nullptr);
}

void WebFront::Serve(HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
  if (const std::string why = check_.Refuses(request); !why.empty()) return Refuse(request, why, reply.get());
  if (request.Path().starts_with(ConnectService::kPath)) return connect_.Serve(std::move(request), reply);
  reply->Send(AnswerPage(pages_, request), nullptr);
}

Result<std::unique_ptr<WebFront>> WebFront::Start(Fd listening, StackdService* service, AccessControl* access,
                                                  RpcMetrics* calls, HttpCounters* counters, ServerTls* tls,
                                                  std::vector<std::string> hosts) {
  std::unique_ptr<WebFront> front(new WebFront(service, access, calls, std::move(hosts)));
  auto server = HttpServer::Start(
      std::move(listening),
      {.handler = [front = front.get()](HttpRequest request, auto reply) { front->Serve(std::move(request), reply); },
       .max_connections = kMaxConnections,
       .max_connections_of_one = kMaxConnections / 2,
       .answer_timeout_ms = kAnswerMs,
       .max_body_bytes = kMaxBodyBytes,
       .fields = SecurityFields(),
       .tls = tls,
       .counters = counters});
  if (!server) return std::unexpected(server.error());
  front->server_ = std::move(*server);
  return front;
}

}  // namespace stackd

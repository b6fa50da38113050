#include "daemon/access/audit.h"

#include <utility>

#include "daemon/base/clock.h"
#include "daemon/log/log.h"

namespace stackd {
namespace {

constexpr int64_t kFloodLineEveryNs = kNsPerSecond;
constexpr size_t kMaxFloods = 256;
constexpr size_t kMaxTextBytes = 256;

bool IsOfFlood(const AuditedCall& call) {
  return call.reason == "CALL_RATE_LIMITED" || call.reason == "TOO_MANY_CALLS" || call.status == "UNAUTHENTICATED";
}

bool IsRefusal(const std::string& status) {
  return status == "PERMISSION_DENIED" || status == "UNAUTHENTICATED" || status == "RESOURCE_EXHAUSTED";
}

}  // namespace

void Audit::Write(const AuditedCall& call, int64_t now_ns) {
  int64_t refusals = 1;
  if (IsOfFlood(call)) {
    std::lock_guard lock(mutex_);
    if (floods_.size() >= kMaxFloods) {
      std::erase_if(floods_, [&](const auto& entry) { return now_ns - entry.second.written_ns > kFloodLineEveryNs; });
    }
    Flood& flood = floods_[call.caller + ' ' + call.reason];
    ++flood.since;
    if (flood.written_ns != 0 && now_ns - flood.written_ns < kFloodLineEveryNs) return;
    flood.written_ns = now_ns;
    refusals = std::exchange(flood.since, 0);
  }
  const bool is_refused = IsRefusal(call.status) || call.reason == "BAD_PAGE_TOKEN";
  Log(is_refused ? LogLevel::kWarning : LogLevel::kInfo, "call",
      {{"caller", call.caller.substr(0, kMaxTextBytes)},
       {"role", RoleName(call.role)},
       {"method", call.method},
       {"resource", call.resource.substr(0, kMaxTextBytes)},
       {"status", call.status},
       {"reason", call.reason},
       {"ms", call.duration_ns / kNsPerMs},
       {"count", refusals}});
}

}  // namespace stackd

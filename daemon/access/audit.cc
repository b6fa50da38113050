#include "daemon/access/audit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/log/log.h"

namespace stackd {
namespace {

constexpr int64_t kFloodLineEveryNs = kNsPerSecond;
// More of them at a time are told as one.
constexpr size_t kMaxFloods = 256;
constexpr size_t kMaxTextBytes = 256;

bool IsOfFlood(const AuditedCall& call) {
  return call.reason == "CALL_RATE_LIMITED" || call.reason == "TOO_MANY_CALLS" || call.status == "PERMISSION_DENIED" ||
         call.status == "UNAUTHENTICATED";
}

bool IsRefusal(const AuditedCall& call) {
  return call.status == "PERMISSION_DENIED" || call.status == "UNAUTHENTICATED" || call.status == "RESOURCE_EXHAUSTED" ||
         call.reason == "BAD_PAGE_TOKEN";
}

AuditedCall Cut(AuditedCall call) {
  call.caller.resize(std::min(call.caller.size(), kMaxTextBytes));
  call.resource.resize(std::min(call.resource.size(), kMaxTextBytes));
  return call;
}

void WriteLine(const AuditedCall& call, int64_t count) {
  Log(IsRefusal(call) ? LogLevel::kWarning : LogLevel::kInfo, "call",
      {{"caller", call.caller},
       {"role", RoleName(call.role)},
       {"method", call.method},
       {"resource", call.resource},
       {"status", call.status},
       {"reason", call.reason},
       {"ms", call.duration_ns / kNsPerMs},
       {"count", count}});
}

}  // namespace

Audit::~Audit() { WriteRest(std::numeric_limits<int64_t>::max()); }

void Audit::Write(const AuditedCall& written, int64_t now_ns) {
  AuditedCall call = Cut(written);
  if (!IsOfFlood(call)) return WriteLine(call, 1);
  std::lock_guard lock(mutex_);
  std::string key = call.caller + ' ' + call.method + ' ' + call.reason;
  if (floods_.size() >= kMaxFloods && !floods_.contains(key)) {
    call.caller = "others";
    key.clear();
  }
  Flood& flood = floods_[key];
  ++flood.since;
  flood.last = std::move(call);
  if (flood.written_ns != 0 && now_ns - flood.written_ns < kFloodLineEveryNs) return;
  flood.written_ns = now_ns;
  WriteLine(flood.last, std::exchange(flood.since, 0));
}

void Audit::WriteRest(int64_t now_ns) {
  std::lock_guard lock(mutex_);
  for (auto entry = floods_.begin(); entry != floods_.end();) {
    Flood& flood = entry->second;
    if (now_ns - flood.written_ns < kFloodLineEveryNs) {
      ++entry;
    } else if (flood.since == 0) {
      entry = floods_.erase(entry);
    } else {
      flood.written_ns = now_ns;
      WriteLine(flood.last, std::exchange(flood.since, 0));
      ++entry;
    }
  }
}

}  // namespace stackd

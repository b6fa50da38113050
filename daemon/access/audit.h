// One line of the log per call: caller, method, and whether the call was allowed. Never a stack.
//
//     {"ts":"…","level":"info","msg":"call","caller":"uid:0","role":"admin","method":"CreateDump",
//      "resource":"processes/7-123","status":"OK","ms":12}
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "daemon/access/role.h"

namespace stackd {

struct AuditedCall {
  std::string caller;
  Role role = Role::kNone;
  std::string method;
  std::string resource;  // as the caller named it
  std::string status;    // "OK", "PERMISSION_DENIED"
  std::string reason;    // of the refusal, as in ErrorInfo
  int64_t duration_ns = 0;
};

// Thread-safe.
class Audit {
 public:
  // Writes what is not written yet.
  ~Audit();

  // Writes one line for a call, as a warning if the call was refused. Refusals for too many calls, a missing role or a
  // missing certificate share one line a second for each caller, method and reason. The line has their number: refusals
  // must not fill the disk.
  void Write(const AuditedCall& call, int64_t now_ns);

  // Writes the lines of floods whose second is over, so that the last refusals are counted too. To be called each second.
  void WriteRest(int64_t now_ns);

 private:
  struct Flood {
    int64_t written_ns = 0;
    int64_t since = 0;  // refusals that have no line of their own
    AuditedCall last;
  };

  std::mutex mutex_;
  std::map<std::string, Flood> floods_;
};

}  // namespace stackd

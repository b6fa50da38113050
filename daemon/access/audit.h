// One line of the log per call: who did what, and whether he was allowed to. Never a stack.
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

  // A call that was refused for what it is has level warning. Those refused because a caller makes too many, because he has
  // no role for them, and those without a certificate, are one line a second of each caller, method and reason, with their
  // number: they must not fill the disk.
  void Write(const AuditedCall& call, int64_t now_ns);

  // To be called each second: the lines of floods whose second is over, so that their number is told also when they end.
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

// A crash or a hang as OpenTelemetry log records. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/result.h"
#include "opentelemetry/proto/logs/v1/logs.pb.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Whether a dump is one that is told of: a crash or a hang.
bool IsEvent(const v1::Dump& dump);

// With the resource of the process that crashed or hangs, not that of stackd. A crash is an event "exception", severity
// FATAL; a hang "stackd.hang", severity ERROR.
opentelemetry::proto::logs::v1::ResourceLogs ToResourceLogs(const v1::Dump& dump, int64_t now_wall_ns);

// The whole dump, with the same resource and time: the event "stackd.dump", severity INFO. Its body is what PackDumpBody
// makes. kResourceExhausted: it is too large.
Result<opentelemetry::proto::logs::v1::ResourceLogs> ToDumpLogs(const v1::Dump& dump, int64_t now_wall_ns);

// Fingerprint of the crash or hang; may be empty.
const std::string& EventFingerprint(const v1::Dump& dump);

}  // namespace stackd

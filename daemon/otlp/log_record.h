// A crash or a hang as an OpenTelemetry log record. Pure.
#pragma once

#include <cstdint>

#include "opentelemetry/proto/logs/v1/logs.pb.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Whether a dump is one that is told of: a crash or a hang.
bool IsEvent(const v1::Dump& dump);

// With the resource of the process that crashed or hangs, not that of stackd. A crash is an event "exception", severity
// FATAL; a hang "stackd.hang", severity ERROR.
opentelemetry::proto::logs::v1::ResourceLogs ToResourceLogs(const v1::Dump& dump, int64_t now_wall_ns);

}  // namespace stackd

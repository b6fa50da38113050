// A dump of a process that has ended, out of its core file: the same stages as behind a capture of an agent.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/result.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// A new dump, whole (view FULL), by `deadline_ns` (CLOCK_MONOTONIC). It is not stored. Fails as CoreCapture::Open. A
// program calls it once.
Result<std::shared_ptr<const v1::Dump>> DumpCore(const std::string& core, const std::string& executable,
                                                 int64_t deadline_ns);

}  // namespace stackd

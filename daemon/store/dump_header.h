// What lists show of a dump, and what is served of one that was never finished.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/result.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

std::string SerializeHeader(const v1::Dump& dump);

// Parses a header or a whole dump. Fails with kDataLoss.
Result<v1::Dump> ParseDump(const std::string& name, const std::string& bytes);

// Adds what makes an unfinished dump understandable.
void MarkUnfinished(bool begun_by_this_daemon, int64_t attempts, v1::Dump* dump);

}  // namespace stackd

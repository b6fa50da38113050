// Resource names of dumps and of the processes they belong to.
#pragma once

#include <string>
#include <string_view>

#include "daemon/base/result.h"

namespace stackd {

// "processes/4711-123456/dumps/20261121T031502Z-1"; fails with kInvalidArgument BAD_NAME and the expected pattern.
Result<void> CheckDumpName(std::string_view name);

// "processes/4711-123456"; fails likewise.
Result<void> CheckProcessName(std::string_view name);

// "processes/4711-123456" of a dump's name that was checked.
std::string_view ProcessOfDump(std::string_view dump_name);

}  // namespace stackd

// Resource names: of dumps, of the processes they belong to, and what all names have in common.
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

// True for what may stand between the slashes of a name.
bool IsResourceId(std::string_view id);

// For messages: what a caller sent may be long, and holds what it likes.
std::string Quoted(std::string_view text);

}  // namespace stackd

// A module that is known only by its build-id.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "daemon/modules/module.h"

namespace stackd {

// Makes an ELF file that has only `build_id` (raw bytes) and the range of its code: enough to find a separate debug file.
Result<std::shared_ptr<const Module>> MakeModuleStub(const std::string& path, std::string_view build_id, uint64_t code_svma,
                                                     uint64_t code_bytes);

}  // namespace stackd

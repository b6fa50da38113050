// A module of which nothing is left but its build-id.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "daemon/modules/module.h"

namespace stackd {

// An ELF file with nothing in it but `build_id` (raw bytes) and where its code was, so that a separate debug file can be
// found for it.
Result<std::shared_ptr<const Module>> MakeModuleStub(const std::string& path, std::string_view build_id, uint64_t code_svma,
                                                     uint64_t code_bytes);

}  // namespace stackd

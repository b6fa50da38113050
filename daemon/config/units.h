// Sizes and durations as people write them.
#pragma once

#include <cstdint>
#include <string_view>

#include "daemon/base/result.h"

namespace stackd {

// "1048576", "256KiB", "256MiB", "1GiB" (also KB, MB, GB: powers of ten).
Result<int64_t> ParseSizeBytes(std::string_view text);

// "500ms", "90s", "15m" or "15min", "12h", "30d"; a bare number is refused, because readers differ on its unit.
Result<int64_t> ParseDurationMs(std::string_view text);

}  // namespace stackd

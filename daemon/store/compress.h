// zstd frames with size and checksum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/result.h"

namespace stackd {

Result<std::string> Compress(std::string_view bytes);

// kDataLoss for anything that Compress did not make, or that was damaged since.
Result<std::string> Decompress(std::string_view frame);

}  // namespace stackd

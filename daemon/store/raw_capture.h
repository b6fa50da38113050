// A Capture as bytes, so that its stacks can be unwound and named again when symbols arrive later.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/capture/capture.h"

namespace stackd {

std::string SerializeRaw(const Capture& capture);

struct RawCapture {
  // Its mappings have no modules: files do not outlive their process here. `bias` is kept.
  Capture capture;
  // build_ids[i] is that of the file behind capture.map->mappings()[i], in hex; empty if it has none or was not had.
  std::vector<std::string> build_ids;
};

// Fails with kDataLoss for anything that SerializeRaw did not write, kFailedPrecondition for what a newer stackd wrote.
Result<RawCapture> ParseRaw(std::string_view bytes);

}  // namespace stackd

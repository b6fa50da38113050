#pragma once

#include <memory>
#include <vector>

#include "daemon/symbolize/symbolizer.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {

// A distinct sequence of program counters, with names: `locations[i]` belongs to `native.frames[i]` and is never null.
struct NamedStack {
  NativeStack native;
  std::vector<std::shared_ptr<const SourceLocation>> locations;
};

}  // namespace stackd

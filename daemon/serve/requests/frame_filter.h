// A dump with the frames that a caller wants to see. The store keeps all: native ones, those of runtimes, and the native
// ones whose place those of runtimes take.
#pragma once

#include <memory>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// `dump` itself if all its frames are shown; else with what they have in common shared. `filter` is one of FrameFilter's
// values.
std::shared_ptr<const v1::Dump> WithFrames(std::shared_ptr<const v1::Dump> dump, v1::FrameFilter filter);

}  // namespace stackd

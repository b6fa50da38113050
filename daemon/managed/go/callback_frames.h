// Go that was called by C: frames of C lie on the thread's own stack, frames of Go on the goroutine's, where the thread is.
// A copy of one stack has the part of the other that it leads to, so both are of one moment.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/capture/jit_code.h"
#include "daemon/managed/go/go_walk.h"
#include "daemon/modules/address_map.h"

namespace stackd {

struct CallbackFrames {
  // Frames that lead an unwinder from the innermost function of Go through those of C, in order of sp_avma.
  std::vector<JitFrame> frames;
  // Number of functions of Go that ran: if the thread began in C, those beyond are made up by Go's runtime.
  size_t go_frame_count = 0;
};

// Whether one of `frames` was called by C.
bool IsCalledByC(const GoBinary& binary, uint64_t bias, std::span<const GoFrame> frames);

// `frames` are those on the goroutine's stack, innermost first. nullopt: the copy has no stack of C, or not all of it.
std::optional<CallbackFrames> FindCallbackFrames(const GoBinary& binary, uint64_t bias, const ThreadCapture& thread,
                                                 const AddressMap& map, std::span<const GoFrame> frames);

}  // namespace stackd

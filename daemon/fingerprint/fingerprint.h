// Fingerprints from hashes of frames, so that a frame which many stacks share is hashed once.
#pragma once

#include <xxhash.h>

#include <span>
#include <string>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Equal for frames with equal function names, or, where a function is not known, with equal places.
XXH128_hash_t HashOfFrame(const v1::Frame& frame);

// Equal for stacks with equal function names (module name and offset where a function is not known): 32 hex digits.
std::string Fingerprint(const v1::Stack& stack);

// As Fingerprint() of a stack whose frames have these hashes.
std::string FingerprintOf(std::span<const XXH128_hash_t> frames);

}  // namespace stackd

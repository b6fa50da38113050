// ManagedFacts in a raw capture.
#pragma once

#include "daemon/capture/managed.h"
#include "daemon/store/raw_capture.pb.h"

namespace stackd {

// Whether there is anything to store.
bool HasFacts(const ManagedFacts& facts);

void SerializeManagedFacts(const ManagedFacts& facts, store::RawManaged* raw);

// False if `raw` refers to what is not there.
bool ParseManagedFacts(const store::RawManaged& raw, ManagedFacts* facts);

}  // namespace stackd

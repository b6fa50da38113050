// What threads wait for in a raw capture: futexes, fds and file locks.
#pragma once

#include "daemon/capture/capture.h"
#include "daemon/store/raw_capture.pb.h"

namespace stackd {

void SerializeWaits(const Capture& capture, store::RawCapture* raw);

// False for a file lock of an unknown kind.
bool ParseWaits(const store::RawCapture& raw, Capture* capture);

}  // namespace stackd

// The threads of a capture in a raw capture, with what each of them waits for.
#pragma once

#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/store/raw_capture.pb.h"

namespace stackd {

void SerializeThreads(const std::vector<ThreadCapture>& threads, store::RawCapture* raw);

// Returns what is damaged; nullptr: nothing.
const char* ParseThreads(const store::RawCapture& raw, std::vector<ThreadCapture>* threads);

}  // namespace stackd

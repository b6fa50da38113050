// Sentences of stages that know threads by number only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/capture/capture.h"

namespace stackd {

// "thread 12" becomes "thread writer (tid 12)" where such a thread has a name.
std::string WithThreadNames(std::string_view sentence, const std::vector<ThreadCapture>& threads);

}  // namespace stackd

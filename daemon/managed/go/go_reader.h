// Goroutines of Go programs, unmodified ones too: read from memory.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "daemon/managed/go/go_binary.h"
#include "daemon/managed/runtime_reader.h"

namespace stackd {

std::unique_ptr<RuntimeReader> MakeGoReader();

}  // namespace stackd

// The text that a Go program writes when its runtime ends it: goroutines and functions are taken from it, values are not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/capture/managed.h"

namespace stackd {

struct GoTracebackGoroutine {
  uint64_t id = 0;
  std::string state;  // "running", "chan receive", ...
  std::vector<ManagedFrame> frames;
  std::string created_by;
  uint64_t creator_id = 0;
};

struct GoTraceback {
  // As it was written, without arguments, registers and what a program itself has put into a panic.
  std::string text;
  std::vector<GoTracebackGoroutine> goroutines;  // the one that ended the program is the first
};

GoTraceback ReadGoTraceback(std::string_view text);

// A crash of the thread `tid`, which stands for the first goroutine.
void AddGoTraceback(const RuntimeReport& report, int32_t tid, ManagedFacts* facts);

}  // namespace stackd

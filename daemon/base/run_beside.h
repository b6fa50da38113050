// Work on a second thread.
#pragma once

#include <system_error>
#include <thread>

namespace stackd {

// Runs `work` on a thread of its own. If no thread can be made, runs it on this thread before it returns. A pod has a limit
// of threads, and stackd must still explain the process that leaks them.
template <typename Work>
std::jthread RunBeside(const Work& work) {
  try {
    return std::jthread(work);
  } catch (const std::system_error&) {
    work();
    return {};
  }
}

}  // namespace stackd

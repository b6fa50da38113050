// Work on a second thread.
#pragma once

#include <system_error>
#include <thread>

namespace stackd {

// Runs `work` on a thread of its own. Where none can be made (a pod may have so many processes and threads, and who leaks
// them is what stackd is to explain) it has been done, by this thread, when this returns.
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

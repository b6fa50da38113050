// Ctrl-C in a series of dumps.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"

namespace stackd {

// Ctrl-C ends the series, not the program: what there is by then is shown. The second one ends the program.
class Interruption {
 public:
  Interruption() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    event_fd = event_.get();
    struct sigaction action{};
    action.sa_handler = [](int) {
      const int saved_errno = errno;
      const uint64_t one = 1;
      (void)!write(event_fd, &one, sizeof(one));
      errno = saved_errno;
    };
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(SIGINT, &action, &former_);
  }
  ~Interruption() { sigaction(SIGINT, &former_, nullptr); }

  // True if it came before `deadline_ns`.
  bool ComesBefore(int64_t deadline_ns) const {
    while (true) {
      const int64_t left_ns = std::max<int64_t>(deadline_ns - MonotonicNs(), 0);
      pollfd waited{event_.get(), POLLIN, 0};
      const int ready = poll(&waited, 1, static_cast<int>((left_ns + kNsPerMs - 1) / kNsPerMs));
      // An interrupted poll() finds the event when it is called again.
      if (ready >= 0) return ready > 0;
    }
  }

 private:
  static inline int event_fd = -1;
  Fd event_;
  struct sigaction former_{};
};

}  // namespace stackd

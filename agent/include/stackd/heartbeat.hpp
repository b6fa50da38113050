// Heartbeats for C++: a promise that ends with its scope. Header only, C++11.
//
//     stackd::Heartbeat heartbeat("orders", std::chrono::seconds(5));
//     for (;;) {
//       Job job = heartbeat.suspended([&] { return queue.Pop(); });  // may take as long as it likes
//       job.Run();                                                   // may not
//     }
#ifndef STACKD_HEARTBEAT_HPP_
#define STACKD_HEARTBEAT_HPP_

#include <chrono>
#include <limits>

#include "stackd/agent.h"

namespace stackd {

// Watched from its first beat to the end of its life. Any thread may beat it.
class Heartbeat {
 public:
  // `limit` is the longest time between two beats that is well, 10 ms at least. At most 47 bytes of `name` are kept.
  Heartbeat(const char* name, std::chrono::milliseconds limit)
      : heartbeat_(stackd_heartbeat_register(name, Milliseconds(limit))) {}
  ~Heartbeat() { stackd_heartbeat_unregister(heartbeat_); }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // "I am alive": one store, no system call.
  void beat() noexcept { stackd_beat(heartbeat_); }
  // Not watched until the next beat.
  void suspend() noexcept { stackd_heartbeat_suspend(heartbeat_); }

  // Runs `wait` unwatched, and beats when it is over, by an exception too.
  template <typename Wait>
  auto suspended(Wait&& wait) -> decltype(wait());

 private:
  static unsigned Milliseconds(std::chrono::milliseconds limit) {
    if (limit.count() < 0) return 0;
    const auto most = std::numeric_limits<unsigned>::max();
    return limit.count() > static_cast<std::chrono::milliseconds::rep>(most) ? most : static_cast<unsigned>(limit.count());
  }

  stackd_heartbeat_t* heartbeat_;
};

// Unwatched while it lives: around a wait for work.
class Suspension {
 public:
  explicit Suspension(Heartbeat& heartbeat) noexcept : heartbeat_(heartbeat) { heartbeat_.suspend(); }
  ~Suspension() { heartbeat_.beat(); }
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;

 private:
  Heartbeat& heartbeat_;
};

template <typename Wait>
auto Heartbeat::suspended(Wait&& wait) -> decltype(wait()) {
  Suspension suspension(*this);
  return wait();
}

}  // namespace stackd

#endif  // STACKD_HEARTBEAT_HPP_

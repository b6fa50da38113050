// Threads of one process that use a core for long, stay in the same functions, and keep others from a lock meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/detect/watch/lock_watch.h"
#include "daemon/detect/watch/thread_watch.h"

namespace stackd {

struct Spin {
  int32_t tid = 0;
  std::string function;  // innermost
  LockWait kept_waiting;
  int64_t duration_ns = 0;
};

class SpinWatch {
 public:
  // Takes one sample of one thread at most.
  using FunctionsOf = std::function<std::optional<std::vector<std::string>>(int32_t tid)>;

  std::optional<Spin> Look(const LockView& view, const ThreadWatch& threads, int64_t now_ns, int64_t after_ns,
                           const FunctionsOf& functions_of);
  // Samples are being taken: the next look should come soon.
  bool IsSampling() const;

 private:
  struct Suspect {
    std::vector<std::string> functions;
    int samples = 0;
    int64_t rests_until_ns = 0;  // it was judged: left alone until then
  };
  std::map<int32_t, Suspect> suspects_;
};

}  // namespace stackd

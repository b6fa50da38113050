// A kind of hang that shows in the threads of a process and in the locks that they wait for.
#pragma once

#include <cstdint>

#include "daemon/detect/watch/lock_watch.h"

namespace stackd {

// One look at the threads.
struct ThreadLook {
  const LockView& locks;
  int64_t now_ns;
  // False: the process did not answer the last sample. It would not say where its threads are either, and take as long.
  bool answers;
};

class ThreadDetector {
 public:
  virtual ~ThreadDetector() = default;

  // Ends suspicions whose threads have gone on. Called in each look, before a sample is taken.
  virtual void EndThoseThatMoved() {}
  // Reports whether this look must see the locks. Called in each look, after a sample.
  virtual bool NeedsLocks(int64_t now_ns) = 0;
  virtual void Look(const ThreadLook& look) = 0;
  // Something was seen that the next look, which should come soon, may confirm.
  virtual bool IsConfirming() = 0;
  // Ends what was suspected: no rule asks for it any more, or the process is gone.
  virtual void EndSuspicions() = 0;
};

}  // namespace stackd

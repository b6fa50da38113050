// Compares two dumps of one process, some seconds apart. Tells what one dump cannot: which threads moved or used the
// processor, and whether the process is deadlocked, spinning, stuck, slow, at work or idle.
#pragma once

#include <vector>

#include "daemon/base/result.h"
#include "daemon/compare/thread_progress.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Pure: dumps in, a comparison out. Both dumps must outlive it.
class DumpComparer {
 public:
  // Fails with kFailedPrecondition and reason DIFFERENT_PROCESSES.
  static Result<DumpComparer> Start(const v1::Dump& before, const v1::Dump& after);

  // Adds a dump taken between the two: a thread that was elsewhere then has moved, though it may be back. The dump is not
  // needed after that, so that a long series costs the memory of three.
  void AddBetween(const v1::Dump& between);

  // The whole comparison, however large it is.
  v1::DumpComparison Finish() const;

 private:
  DumpComparer(const v1::Dump& before, const v1::Dump& after);

  const v1::Dump* before_;
  const v1::Dump* after_;
  std::vector<ThreadProgress> threads_;
  int dump_count_ = 2;
};

}  // namespace stackd

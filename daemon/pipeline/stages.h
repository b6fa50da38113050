// The stages behind a capture, in their order: unwind, name, merge the frames of runtimes, assemble, find waits and hangs.
// They need neither the process nor a store.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/analyze/waits/wait.h"
#include "daemon/base/byte_budget.h"
#include "daemon/base/histogram.h"
#include "daemon/capture/capture.h"
#include "daemon/capture/named_stack.h"
#include "daemon/capture/native_stack.h"
#include "daemon/resymbolize/earlier_stacks.h"
#include "daemon/symbolize/imported_calls.h"
#include "daemon/symbolize/symbolizer.h"
#include "daemon/unwind/unwinder.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Since start.
struct StageMeasures {
  std::array<std::atomic<int64_t>, 8> stacks_by_end{};  // by StackEnd: each time one was unwound
  DurationHistogram unwind, symbolize;                  // of dumps
};

// The stacks of a capture, equal ones once.
struct DistinctStacks {
  std::vector<int> of_thread;  // index into `stacks`, or -1
  std::vector<NamedStack> stacks;
  std::vector<size_t> first_thread;  // of each stack: the first that has it
};

// What became of a capture, and how long each step took.
struct MadeDump {
  std::shared_ptr<v1::Dump> dump;
  std::vector<NamedStack> stacks;
  int64_t unwind_us;
  int64_t name_us;
  int64_t assemble_us;
  int64_t analyze_us;
};

// Thread-safe.
class Stages {
 public:
  // All must outlive the stages, and `dumps` what they give: the memory for dumps; nullptr: there is no limit.
  Stages(Symbolizer* symbolizer, ByteBudget* dumps, StageMeasures* measures)
      : symbolizer_(symbolizer), dumps_budget_(dumps), measures_(measures) {}

  // What `earlier` knows of the capture stays, if it is given.
  MadeDump MakeDump(const Capture& capture, int64_t deadline_ns, const std::string& id,
                    const EarlierStacks* earlier = nullptr);

  // Names of the functions that the threads of `capture` are in, thread by thread, innermost first; one that is not known
  // is empty.
  std::vector<std::string> FunctionsOf(const Capture& capture, int64_t deadline_ns);

 private:
  std::unique_ptr<Unwinder> TakeUnwinder();
  void GiveBack(std::unique_ptr<Unwinder> unwinder);
  std::vector<NativeStack> Unwind(const Capture& capture);
  void Name(const Capture& capture, int64_t deadline_ns, std::vector<NamedStack>* stacks);
  void NameByCalls(const Capture& capture, NamedStack* stack);
  std::vector<std::string> NameVariables(const std::vector<DataAddress>& addresses, int64_t deadline_ns);

  Symbolizer* const symbolizer_;
  ByteBudget* const dumps_budget_;
  StageMeasures* const measures_;
  ImportedCalls imported_calls_;
  std::mutex mutex_;
  // Kept from dump to dump, because their caches are warm.
  std::vector<std::unique_ptr<Unwinder>> idle_unwinders_;
};

}  // namespace stackd

// The stages that a capture goes through until it is a dump: unwind, name, merge, assemble, analyze.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/byte_budget.h"
#include "daemon/base/clock.h"
#include "daemon/capture/capture.h"
#include "daemon/capture/named_stack.h"
#include "daemon/pipeline/naming_stage.h"
#include "daemon/pipeline/pipeline_counters.h"
#include "daemon/pipeline/unwind_stage.h"
#include "daemon/resymbolize/earlier_stacks.h"
#include "daemon/symbolize/symbolizer.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// How long each stage took.
struct StageTimes {
  int64_t capture_ns, runtimes_ns, unwind_ns, name_ns, assemble_ns, analyze_ns, pack_ns, store_ns;
};

class Stopwatch {
 public:
  // Gives the time since the last lap.
  int64_t LapNs() {
    const int64_t now_ns = MonotonicNs();
    return now_ns - std::exchange(begin_ns_, now_ns);
  }

 private:
  int64_t begin_ns_ = MonotonicNs();
};

struct MadeDump {
  std::shared_ptr<v1::Dump> dump;
  std::vector<NamedStack> stacks;
};

// Thread-safe.
class DumpStages {
 public:
  // `dumps` must outlive what Run gives.
  DumpStages(Symbolizer* symbolizer, ByteBudget* dumps, PipelineMeasures* measures)
      : symbolizer_(symbolizer), dumps_(dumps), measures_(measures), unwind_(measures, dumps), naming_(symbolizer) {}

  // What `earlier` knows of the capture stays, if it is given. `name_code` names code outside of files.
  MadeDump Run(const Capture& capture, int64_t deadline_ns, const std::string& id, StageTimes* times,
               const EarlierStacks* earlier = nullptr, const NameCode& name_code = {});
  // Gives the functions of all threads that people would be shown, innermost first.
  std::vector<std::string> Functions(const Capture& capture, int64_t deadline_ns);

 private:
  Symbolizer* const symbolizer_;
  ByteBudget* const dumps_;
  PipelineMeasures* const measures_;
  UnwindStage unwind_;
  NamingStage naming_;
};

}  // namespace stackd

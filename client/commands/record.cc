// stackctl record: where the threads of a process are, looked at again and again without interrupting them.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "client/commands/commands.h"
#include "client/commands/interruption.h"
#include "client/commands/output_file.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "client/record/record_formats.h"
#include "client/record/sample_period.h"
#include "client/record/stack_samples.h"
#include "daemon/base/clock.h"
#include "daemon/pipeline/outside_dump.h"
#include "daemon/serve/requests/frame_filter.h"

namespace stackd {
namespace {

using SharedDump = std::shared_ptr<const v1::Dump>;

// A sample that is not there by then is missed.
constexpr int64_t kSampleNs = 5 * kNsPerSecond;
constexpr int64_t kProgressNs = 5 * kNsPerSecond;

// Takes one sample.
using TakeSample = std::function<Result<SharedDump>()>;

TakeSample SamplesOfPid(std::shared_ptr<OutsideDump> outside) {
  return [outside = std::move(outside)]() -> Result<SharedDump> {
    auto dump = outside->Take({.deadline_ns = MonotonicNs() + kSampleNs, .may_stop = false});
    if (!dump) return std::unexpected(dump.error());
    return WithFrames(std::move(*dump), v1::ALL_FRAMES);
  };
}

TakeSample SamplesOfDaemon(Api* api, const std::string& process) {
  v1::CreateDumpRequest request;
  request.set_process(process);
  request.set_view(v1::DUMP_VIEW_FULL);
  request.set_quiet(v1::ONLY);
  request.set_unstored(true);
  return [api, request]() mutable -> Result<SharedDump> {
    auto dump = api->CreateDump(request);
    if (!dump) return std::unexpected(dump.error());
    if (!dump->name().empty()) {
      return Error(Code::kFailedPrecondition,
                   "this stackd is older than stackctl and stores each sample as a dump: use record --pid N");
    }
    // The process of the first sample, also if others have come that its name fits.
    request.set_process(dump->process().name());
    return std::make_shared<const v1::Dump>(std::move(*dump));
  };
}

struct Recorded {
  StackSamples samples;
  RecordTimes times;
  std::optional<Status> ended_by;  // what no further sample could follow
  bool interrupted = false;
};

// Whether other samples may follow one that failed so.
bool IsPassing(const Status& status) {
  return status.code == Code::kResourceExhausted || status.code == Code::kDeadlineExceeded ||
         status.code == Code::kUnavailable;
}

Recorded Record(const TakeSample& take, const Options& options) {
  const Interruption interruption;
  const int64_t begin_ns = MonotonicNs(), end_ns = begin_ns + options.for_ms * kNsPerMs;
  Recorded recorded{.times = {.begin_wall_ns = WallNs()}};
  SamplePeriod period(options.every_ms < 0 ? std::nullopt : std::optional(options.every_ms * kNsPerMs));
  int64_t next_ns = begin_ns, progress_ns = begin_ns + kProgressNs;
  while (next_ns < end_ns && !recorded.interrupted) {
    auto sample = take();
    if (sample) {
      recorded.samples.Add(**sample);
      period.Learn(**sample);
    } else if (recorded.samples.sample_count() == 0 || !IsPassing(sample.error())) {
      recorded.ended_by = sample.error();
      break;
    } else {
      recorded.samples.Miss(sample.error().message);
    }
    const int64_t now_ns = MonotonicNs();
    if (now_ns >= progress_ns) {
      progress_ns += kProgressNs;
      Complain(std::to_string(recorded.samples.sample_count()) + " samples in " + SpanText(now_ns - begin_ns));
    }
    next_ns = std::max(next_ns + period.every_ns(), now_ns);
    recorded.interrupted = interruption.ComesBefore(std::min(next_ns, end_ns));
  }
  recorded.times.duration_ns = MonotonicNs() - begin_ns;
  return recorded;
}

void Write(const Recorded& recorded, const Options& options, const Sink& sink) {
  if (options.format == "folded") return WriteRecordFolded(recorded.samples, sink);
  if (options.format == "pprof") return WriteRecordPprof(recorded.samples, recorded.times, sink);
  if (options.format == "speedscope") return WriteRecordSpeedscope(recorded.samples, recorded.times, sink);
  WriteRecordText(recorded.samples, recorded.times, sink);
}

int WriteTo(const Recorded& recorded, const Options& options) {
  bool written = true;
  const Sink print = [&](std::string_view bytes) { return written = Print(bytes); };
  if (options.to == "-") {
    Write(recorded, options, print);
    return written ? kOk : kFailure;
  }
  return WriteFile(options.to, [&](const Sink& sink) {
    Write(recorded, options, sink);
    return kOk;
  });
}

}  // namespace

int RunRecord(Api& api, const Options& options) {
  if (!MayPrint(options)) return kUsage;
  TakeSample take;
  if (options.pid != 0) {
    auto outside = OutsideDump::Open(options.pid);
    if (!outside) return Failed(outside.error());
    // What may still wait for the memory of the process ends with the program.
    take = SamplesOfPid(std::shared_ptr<OutsideDump>(outside->release(), [](OutsideDump*) {}));
  } else {
    take = SamplesOfDaemon(&api, options.name);
  }
  Complain("takes samples for " + SpanText(options.for_ms * kNsPerMs) + "; Ctrl-C ends it earlier");
  const Recorded recorded = Record(take, options);
  if (recorded.samples.sample_count() == 0) return recorded.ended_by ? Failed(*recorded.ended_by) : kPartial;
  if (const int exit_code = WriteTo(recorded, options); exit_code != kOk) return exit_code;
  if (recorded.ended_by) return Failed(*recorded.ended_by);
  if (!recorded.interrupted) return kOk;
  Complain("interrupted after " + std::to_string(recorded.samples.sample_count()) + " samples");
  return kPartial;
}

}  // namespace stackd

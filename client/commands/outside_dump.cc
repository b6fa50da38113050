#include "daemon/pipeline/outside_dump.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/commands/commands.h"
#include "client/commands/interruption.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/base/clock.h"
#include "daemon/compare/compare.h"
#include "daemon/serve/requests/frame_filter.h"

namespace stackd {
namespace {

constexpr int64_t kDefaultTimeoutMs = 15'000;

using SharedDump = std::shared_ptr<const v1::Dump>;

Result<SharedDump> Take(OutsideDump* outside, const Options& options) {
  const int64_t timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : kDefaultTimeoutMs;
  return outside->Take(
      {.deadline_ns = MonotonicNs() + timeout_ms * kNsPerMs, .may_stop = !options.no_ptrace && options.quiet != "only"});
}

// As TakeSamples, where a daemon keeps the dumps: fewer than were asked for after Ctrl-C, or with `failed`.
std::vector<SharedDump> TakeSeries(OutsideDump* outside, const Options& options, std::optional<Status>* failed) {
  const Interruption interruption;
  std::vector<SharedDump> dumps;
  int64_t next_ns = MonotonicNs();
  while (true) {
    auto dump = Take(outside, options);
    if (!dump) {
      *failed = dump.error();
      return dumps;
    }
    dumps.push_back(std::move(*dump));
    if (options.samples == 1) return dumps;
    Complain("dump " + std::to_string(dumps.size()) + " of " + std::to_string(options.samples) + ": " +
             ThreadsText(dumps.back()->thread_counts()) + " threads");
    if (std::ssize(dumps) == options.samples) return dumps;
    next_ns = std::max(next_ns + options.every_ms * kNsPerMs, MonotonicNs());
    if (interruption.ComesBefore(next_ns)) return dumps;
  }
}

Result<v1::DumpComparison> Compare(const std::vector<SharedDump>& dumps) {
  auto comparer = DumpComparer::Start(*dumps.front(), *dumps.back());
  if (!comparer) return std::unexpected(comparer.error());
  for (size_t i = 1; i + 1 < dumps.size(); i++) comparer->AddBetween(*dumps[i]);
  return comparer->Finish();
}

// False: it could not be written.
bool PrintSeries(const v1::Dump& last, const std::optional<v1::DumpComparison>& comparison, const Options& options) {
  const auto format = FormatOf(options);
  if (options.samples == 1) return PrintAs(format, last);
  if (format == v1::ExportDumpRequest::JSON) {
    const bool printed = Print("{\"dump\": ") && PrintAs(format, last);
    return printed && (!comparison || Print(", \"comparison\": " + Json(*comparison))) && Print("}\n");
  }
  return PrintAs(format, last) && (!comparison || (Print("\n") && PrintLines(comparison->lines())));
}

}  // namespace

int RunOutsideDump(const Options& options) {
  auto outside = OutsideDump::Open(options.pid);
  if (!outside) return Failed(outside.error());
  std::optional<Status> failed;
  const std::vector<SharedDump> dumps = TakeSeries(outside->get(), options, &failed);
  // What may still wait for the memory of the process ends with the program.
  outside->release();
  if (dumps.empty()) return Failed(*failed);
  std::optional<v1::DumpComparison> comparison;
  if (dumps.size() > 1) {
    auto compared = Compare(dumps);
    if (compared) comparison = std::move(*compared);
    if (!compared && !failed) failed = compared.error();
  }
  if (!PrintSeries(*WithFrames(dumps.back(), FramesOf(options)), comparison, options)) return kFailure;
  if (failed) return Failed(*failed);
  if (std::ssize(dumps) == options.samples) return PartialOrOk(*dumps.back());
  Complain("interrupted after " + std::to_string(dumps.size()) + " of " + std::to_string(options.samples) + " dumps");
  return kPartial;
}

}  // namespace stackd

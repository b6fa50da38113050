#include <algorithm>
#include <optional>
#include <utility>

#include "client/commands/commands.h"
#include "client/commands/interruption.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/base/clock.h"

namespace stackd {
namespace {

struct Series {
  std::vector<v1::Dump> dumps;   // view BASIC, in order of time
  std::optional<Status> failed;  // what went wrong first
};

void SayWhatCame(const v1::Dump& dump, size_t number, int wanted) {
  Complain("dump " + std::to_string(number) + " of " + std::to_string(wanted) + ": " + ThreadsText(dump.thread_counts()) +
           " threads, " + dump.name());
}

Series TakeSamples(Api& api, const Options& options) {
  const Interruption interruption;
  Series series;
  v1::CreateDumpRequest request;
  request.set_process(options.name);
  request.set_view(v1::DUMP_VIEW_BASIC);
  request.set_quiet(QuietOf(options));
  int64_t next_ns = MonotonicNs();
  while (true) {
    auto dump = api.CreateDump(request);
    if (!dump) {
      series.failed = dump.error();
      return series;
    }
    // The process that the first one was of, also if others have come that its name fits.
    request.set_process(dump->process().name());
    series.dumps.push_back(std::move(*dump));
    SayWhatCame(series.dumps.back(), series.dumps.size(), options.samples);
    if (std::ssize(series.dumps) == options.samples) return series;
    next_ns = std::max(next_ns + options.every_ms * kNsPerMs, MonotonicNs());
    if (interruption.ComesBefore(next_ns)) return series;
  }
}

// nullopt: there is nothing to compare, or it failed. In a series, what was taken is shown also then.
std::optional<v1::DumpComparison> Compare(Api& api, Series* series) {
  if (series->dumps.size() < 2) return std::nullopt;
  v1::CompareDumpsRequest request;
  request.set_before(series->dumps.front().name());
  request.set_after(series->dumps.back().name());
  auto comparison = api.CompareDumps(request);
  if (comparison) return std::move(*comparison);
  if (!series->failed) series->failed = comparison.error();
  return std::nullopt;
}

// {"dump": ..., "comparison": ...}: the dump is streamed, because it may be large.
Result<bool> PrintJson(Api& api, const v1::ExportDumpRequest& last, const std::optional<v1::DumpComparison>& comparison) {
  if (!Print("{\"dump\": ")) return false;
  Result<void> printed = PrintDump(api, last);
  if (!printed) return std::unexpected(printed.error());
  return (!comparison || Print(", \"comparison\": " + Json(*comparison))) && Print("}\n");
}

Result<bool> PrintText(Api& api, const v1::ExportDumpRequest& last, const std::optional<v1::DumpComparison>& comparison) {
  Result<void> printed = PrintDump(api, last);
  if (!printed) return std::unexpected(printed.error());
  return !comparison || (Print("\n") && PrintLines(comparison->lines()));
}

}  // namespace

int RunSamples(Api& api, const Options& options) {
  Series series = TakeSamples(api, options);
  if (series.dumps.empty()) return Failed(*series.failed);
  const std::optional<v1::DumpComparison> comparison = Compare(api, &series);
  const v1::ExportDumpRequest last = ExportRequest(series.dumps.back().name(), options);
  const Result<bool> printed =
      last.format() == v1::ExportDumpRequest::JSON ? PrintJson(api, last, comparison) : PrintText(api, last, comparison);
  if (!printed) return Failed(printed.error());
  if (!*printed) return kFailure;
  if (series.failed) return Failed(*series.failed);
  if (std::ssize(series.dumps) == options.samples) return PartialOrOk(series.dumps.back());
  Complain("interrupted after " + std::to_string(series.dumps.size()) + " of " + std::to_string(options.samples) +
           " dumps");
  return kPartial;
}

}  // namespace stackd

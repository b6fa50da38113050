#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/base/clock.h"
#include "daemon/base/fd.h"

namespace stackd {
namespace {

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

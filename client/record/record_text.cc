#include <algorithm>
#include <cstdio>
#include <string>

#include "client/record/record_formats.h"
#include "daemon/base/clock.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/printable.h"
#include "daemon/export/text_stack.h"
#include "daemon/export/wording.h"

namespace stackd {
namespace {

// An operator reads no more than a page of them; the other formats have all.
constexpr size_t kMaxShown = 20;

std::string Percent(int64_t part, int64_t whole) {
  char text[16];
  snprintf(text, sizeof(text), "%.1f%%", whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

std::string Seconds(int64_t span_ns) {
  char text[32];
  snprintf(text, sizeof(text), "%.1f s", static_cast<double>(span_ns) / kNsPerSecond);
  return text;
}

// "10 threads: worker", "1 goroutine"
std::string WhoInWords(const SampledStack& stack) {
  if (stack.is_task) return Count(stack.most_at_once, stack.who);
  return Count(stack.most_at_once, "thread") + ": " + (stack.who.empty() ? "(no name)" : Printable(stack.who));
}

void WriteHeading(const StackSamples& samples, const RecordTimes& times, Piecewise* out) {
  *out << Printable(samples.process().display_name()) << " (pid " << std::to_string(samples.process().pid())
       << "): " << Count(samples.sample_count(), "sample") << " in " << Seconds(times.duration_ns) << ", one each "
       << std::to_string(PeriodNs(samples, times) / kNsPerMs) << " ms\n";
  for (const auto& [reason, count] : samples.missed()) {
    *out << Count(count, "sample") << " missed: " << Printable(reason) << "\n";
  }
  if (samples.left_out() > 0) {
    *out << Percent(samples.left_out(), samples.total())
         << " of the time is not shown: there was no room for more stacks\n";
  }
}

}  // namespace

void WriteRecordText(const StackSamples& samples, const RecordTimes& times, const Sink& sink) {
  Piecewise out(sink);
  WriteHeading(samples, times, &out);
  const auto most_first = samples.MostFirst();
  for (size_t i = 0; i < std::min(most_first.size(), kMaxShown) && out.wanted(); ++i) {
    const SampledStack& stack = *most_first[i];
    out << "\n" << Percent(stack.count, samples.total()) << " · " << WhoInWords(stack);
    if (!stack.wait.empty()) out << " · " << Printable(stack.wait);
    out << "\n";
    if (stack.stack.frames().empty()) {
      out << "  (no stack" << (stack.state.empty() ? "" : ": " + Printable(stack.state)) << ")\n";
    } else {
      WriteStack(stack.stack, "  ", &out);
    }
  }
  if (most_first.size() <= kMaxShown) return;
  int64_t rest = 0;
  for (size_t i = kMaxShown; i < most_first.size(); ++i) rest += most_first[i]->count;
  out << "\n"
      << Percent(rest, samples.total()) << " in "
      << Count(static_cast<int64_t>(most_first.size() - kMaxShown), "other stack")
      << ": -f folded, pprof and speedscope have all\n";
}

}  // namespace stackd

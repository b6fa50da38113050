#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "client/record/record_formats.h"
#include "daemon/export/flat_stack.h"
#include "daemon/export/folded_line.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/pprof_writer.h"
#include "daemon/export/speedscope_writer.h"

namespace stackd {
namespace {

// Innermost first: what it waited for, then its frames or what stands for them.
std::vector<FlatFrame> FramesOf(const SampledStack& stack) {
  std::vector<FlatFrame> frames;
  if (!stack.wait.empty()) frames.push_back({"[" + stack.wait + "]", nullptr});
  std::vector<FlatFrame> called = FlatFrames(stack.stack);
  if (called.empty()) called.push_back({NoStackInWords(stack.state), nullptr});
  frames.insert(frames.end(), std::make_move_iterator(called.begin()), std::make_move_iterator(called.end()));
  return frames;
}

std::string_view NameOf(const SampledStack& stack) { return stack.who.empty() ? "(no name)" : std::string_view(stack.who); }

}  // namespace

int64_t PeriodNs(const StackSamples& samples, const RecordTimes& times) {
  return times.duration_ns / std::max<int64_t>(1, samples.sample_count());
}

void WriteRecordFolded(const StackSamples& samples, const Sink& sink) {
  Piecewise out(sink);
  const std::string process = FoldedElement(samples.process().display_name());
  for (const SampledStack* stack : samples.MostFirst()) {
    if (!out.wanted()) return;
    out << process << ";" << FoldedElement(stack->who) << FoldedFrames(FramesOf(*stack)) << " "
        << std::to_string(stack->count) << "\n";
  }
}

void WriteRecordPprof(const StackSamples& samples, const RecordTimes& times, const Sink& sink) {
  PprofWriter out(std::array{PprofValueType{"samples", "count"}, PprofValueType{"time", "nanoseconds"}}, sink);
  out.SetTime(times.begin_wall_ns, times.duration_ns);
  const int64_t period_ns = PeriodNs(samples, times);
  out.SetPeriod(period_ns);
  for (const auto& [reason, count] : samples.missed()) {
    out.AddComments(std::to_string(count) + " samples missed: " + reason);
  }
  for (const v1::Module& module : samples.modules()) out.AddMapping(module);
  for (const SampledStack* stack : samples.MostFirst()) {
    if (!out.wanted()) return;
    const std::vector<uint64_t> locations = out.Locations(FramesOf(*stack));
    pprof::Sample* sample = out.AddSample(locations, std::array{stack->count, stack->count * period_ns});
    out.AddLabel("process", samples.process().display_name(), sample);
    out.AddLabel(stack->is_task ? "task" : "thread", stack->who, sample);
    out.AddLabel("wait", stack->wait_kind, sample);
  }
  out.Finish();
}

void WriteRecordSpeedscope(const StackSamples& samples, const RecordTimes& times, const Sink& sink) {
  const v1::Process& process = samples.process();
  SpeedscopeWriter out(process.display_name() + " (pid " + std::to_string(process.pid()) + "), waiting and running", sink);
  SpeedscopeProfile threads{.name = process.display_name() + ": threads", .unit = "nanoseconds"};
  SpeedscopeProfile tasks{.name = process.display_name() + ": tasks", .unit = "nanoseconds"};
  for (const SampledStack* stack : samples.MostFirst()) {
    if (!out.wanted()) return;
    const size_t root = out.AddRoot(NameOf(*stack));
    (stack->is_task ? tasks : threads)
        .samples.push_back(
            {.root = root, .stack = out.AddStack(FramesOf(*stack)), .weight = stack->count * PeriodNs(samples, times)});
  }
  std::vector<SpeedscopeProfile> profiles{std::move(threads)};
  if (!tasks.samples.empty()) profiles.push_back(std::move(tasks));
  out.Finish(profiles);
}

}  // namespace stackd

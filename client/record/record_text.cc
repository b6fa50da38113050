#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

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

// Threads of all names that were in one place and waited for one thing.
struct SamePlace {
  const SampledStack* stack;
  int64_t count = 0;
  std::vector<Counted> names;
};

// "10 threads: worker (8), io (2)", "1 goroutine"
std::string WhoInWords(const SamePlace& place) {
  int64_t threads = 0;
  for (const Counted& name : place.names) threads += name.count;
  if (place.stack->is_task) return Count(threads, place.stack->who);
  return Count(threads, "thread") + ": " + CountedList(place.names);
}

// Places, those with the most time first.
std::vector<SamePlace> PlacesOf(const std::vector<const SampledStack*>& stacks) {
  std::map<std::string, size_t> known;  // by what is shown
  std::vector<SamePlace> places;
  for (const SampledStack* stack : stacks) {
    const std::string kind = stack->is_task ? "task " + stack->who : "thread";
    const std::string key = kind + "\n" + stack->wait + "\n" + stack->state + "\n" + stack->stack.SerializeAsString();
    const auto [at, is_new] = known.try_emplace(key, places.size());
    if (is_new) places.push_back({.stack = stack});
    SamePlace& place = places[at->second];
    place.count += stack->count;
    place.names.push_back(
        {stack->who.empty() ? "(no name)" : Printable(stack->who), static_cast<int>(stack->most_at_once)});
  }
  std::ranges::stable_sort(places, std::greater(), &SamePlace::count);
  return places;
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

void WritePlace(const SamePlace& place, int64_t total, Piecewise* out) {
  const SampledStack& stack = *place.stack;
  *out << "\n" << Percent(place.count, total) << " · " << WhoInWords(place);
  if (!stack.wait.empty()) *out << " · " << Printable(stack.wait);
  *out << "\n";
  if (!stack.stack.frames().empty()) return WriteStack(stack.stack, "  ", out);
  *out << "  (no stack" << (stack.state.empty() ? "" : ": " + Printable(stack.state)) << ")\n";
}

// Writes how long threads were idle, and which: a line for each name.
void WriteIdle(const std::vector<const SampledStack*>& idle, int64_t total, Piecewise* out) {
  if (idle.empty()) return;
  std::map<std::string, int64_t> by_name;
  int64_t count = 0;
  for (const SampledStack* stack : idle) {
    by_name[stack->who] += stack->count;
    count += stack->count;
  }
  std::vector<std::pair<int64_t, std::string>> most_first;
  for (const auto& [name, of_name] : by_name)
    most_first.emplace_back(of_name, name.empty() ? "(no name)" : Printable(name));
  std::ranges::sort(most_first, std::greater());
  *out << "\n" << Percent(count, total) << " idle: waiting for work, time or events\n";
  for (size_t i = 0; i < std::min(most_first.size(), kMaxShown); ++i) {
    *out << "  " << Percent(most_first[i].first, total) << " · " << most_first[i].second << "\n";
  }
}

}  // namespace

void WriteRecordText(const StackSamples& samples, const RecordTimes& times, const Sink& sink) {
  Piecewise out(sink);
  WriteHeading(samples, times, &out);
  std::vector<const SampledStack*> busy, idle;
  for (const SampledStack* stack : samples.MostFirst()) (stack->is_idle ? idle : busy).push_back(stack);
  const std::vector<SamePlace> places = PlacesOf(busy);
  int64_t rest = 0;
  for (size_t i = 0; i < places.size() && out.wanted(); ++i) {
    if (i < kMaxShown) {
      WritePlace(places[i], samples.total(), &out);
    } else {
      rest += places[i].count;
    }
  }
  if (rest > 0) {
    out << "\n"
        << Percent(rest, samples.total()) << " in " << Count(static_cast<int64_t>(places.size() - kMaxShown), "other stack")
        << ": -f folded, pprof and speedscope have all\n";
  }
  WriteIdle(idle, samples.total(), &out);
}

}  // namespace stackd

#include "daemon/compare/comparison_text.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/compare/words.h"
#include "daemon/export/printable.h"
#include "daemon/export/wording.h"

namespace stackd {
namespace {

using Comparison = v1::DumpComparison;

// Threads that all do something else would fill screens.
constexpr size_t kMaxGroups = 40;

std::string_view VerdictInWords(Comparison::Verdict verdict) {
  switch (verdict) {
    case Comparison::DEADLOCKED:
      return "deadlocked";
    case Comparison::SPINNING:
      return "spinning";
    case Comparison::STUCK:
      return "stuck";
    case Comparison::SLOW:
      return "slow";
    case Comparison::WORKING:
      return "working";
    case Comparison::IDLE:
      return "idle";
    default:
      return "not known";
  }
}

std::string_view StateInWords(const JudgedThread& thread) {
  switch (thread.progress.change()) {
    case Comparison::STARTED:
      return "started";
    case Comparison::ENDED:
      return "ended";
    default:
      return VerdictInWords(thread.verdict);
  }
}

// Severities as the text of a dump has them.
std::string_view SeverityInWords(v1::Finding::Severity severity) {
  switch (severity) {
    case v1::Finding::HANG:
      return "HANG";
    case v1::Finding::SUSPICIOUS:
      return "SUSPICIOUS";
    default:
      return "Harmless";
  }
}

int64_t BetweenNs(const Comparison& comparison) {
  return comparison.between().seconds() * kNsPerSecond + comparison.between().nanos();
}

// "3 threads wait for mutex …", from the words of one: "waits for mutex …".
std::string Together(int64_t thread_count, const JudgedThread& first) {
  const std::string words = ProgressInWords(first.progress);
  if (thread_count == 1) return ThreadInWords(first.progress.last()) + " " + words;
  constexpr std::string_view kWaits = "waits ", kHasNot = "has not ";
  std::string plural = Count(thread_count, "thread") + " ";
  if (words.starts_with(kWaits)) return plural + "wait " + words.substr(kWaits.size());
  if (words.starts_with(kHasNot)) return plural + "have not " + words.substr(kHasNot.size());
  return plural + words;
}

// The most frequent words of the threads with this verdict that wait, said of all that share them.
std::string MostFrequent(const std::vector<JudgedThread>& threads, Comparison::Verdict verdict) {
  struct Same {
    int64_t count = 0;
    const JudgedThread* first = nullptr;
  };
  std::unordered_map<std::string, Same> by_words;
  const Same* most = nullptr;
  for (const JudgedThread& thread : threads) {
    if (thread.verdict != verdict || (verdict == Comparison::SLOW && !thread.progress.last().has_wait())) continue;
    Same& same = by_words[ProgressInWords(thread.progress)];
    if (++same.count == 1) same.first = &thread;
    // References into the map stay valid; the first to have so many wins.
    if (most == nullptr || same.count > most->count) most = &same;
  }
  return most == nullptr ? "" : Together(most->count, *most->first);
}

int64_t CountOf(const std::vector<JudgedThread>& threads, auto condition) {
  return std::ranges::count_if(
      threads, [&](const JudgedThread& thread) { return !IsOwnThread(thread.progress) && condition(thread); });
}

bool Moved(const JudgedThread& thread) {
  const Comparison::Change change = thread.progress.change();
  return thread.progress.ran() || change == Comparison::STARTED || change == Comparison::ENDED;
}

// The sentence of the worst finding of these kinds; empty if there is none.
std::string FindingOf(const Comparison& comparison, std::initializer_list<v1::Finding::Kind> kinds) {
  for (const v1::Finding& finding : comparison.findings()) {
    if (std::ranges::find(kinds, finding.kind()) != kinds.end()) return Printable(finding.explanation());
  }
  return {};
}

std::string WorkingInWords(const std::vector<JudgedThread>& threads, int64_t between_ns) {
  int64_t cpu_ns = 0;
  for (const JudgedThread& thread : threads) {
    if (!IsOwnThread(thread.progress)) cpu_ns += std::max<int64_t>(0, thread.progress.cpu_ns.value_or(0));
  }
  return Grouped(CountOf(threads, Moved)) + " of " + Count(CountOf(threads, [](const auto&) { return true; }), "thread") +
         " moved in " + TimeInWords(between_ns) + " and used " + TimeInWords(cpu_ns) +
         " of processor time together; nobody waits for them";
}

std::string IdleInWords(const std::vector<JudgedThread>& threads, int64_t between_ns) {
  const int64_t idle = CountOf(threads, [](const auto& thread) { return thread.verdict == Comparison::IDLE; });
  const int64_t unknown =
      CountOf(threads, [](const auto& thread) { return RankOf(thread.verdict) > RankOf(Comparison::IDLE); });
  std::string text = "in " + TimeInWords(between_ns) + " nothing moved: " + Count(idle, "thread") +
                     (idle == 1 ? " waits" : " wait") + " for work, time or events";
  if (unknown > 0) text += "; of " + Grouped(unknown) + " more it is not known";
  return text;
}

// Whether the rest of the process goes on.
std::string Others(const std::vector<JudgedThread>& threads, int64_t between_ns) {
  const int64_t moved = CountOf(threads, Moved);
  if (moved == 0) return "nothing moved in " + TimeInWords(between_ns);
  return Count(moved, "other thread") + " moved in " + TimeInWords(between_ns);
}

std::string LoopsInWords(const Comparison& comparison, const std::vector<JudgedThread>& threads) {
  std::string text = FindingOf(comparison, {v1::Finding::LIVELOCK, v1::Finding::SPINNING});
  const int64_t stuck = CountOf(threads, [](const auto& thread) { return thread.verdict == Comparison::STUCK; });
  if (stuck > 0) text += "; " + Count(stuck, "thread") + (stuck == 1 ? " is" : " are") + " stuck";
  return text;
}

struct ThreadGroup {
  const JudgedThread* first = nullptr;
  std::vector<int32_t> tids;
  std::map<std::string, int> names;
  int64_t cpu_ns = 0;
};

// Threads that did the same, in the order of the list.
std::vector<ThreadGroup> GroupThreads(const std::vector<JudgedThread>& threads) {
  std::vector<ThreadGroup> groups;
  std::map<std::pair<std::string, std::string>, size_t> index;
  for (const JudgedThread& thread : threads) {
    if (IsOwnThread(thread.progress)) continue;
    const std::pair key{std::string(StateInWords(thread)), ProgressInWords(thread.progress)};
    const auto [entry, is_new] = index.try_emplace(key, groups.size());
    if (is_new) groups.push_back({.first = &thread});
    ThreadGroup& group = groups[entry->second];
    const std::string& name = thread.progress.last().name();
    group.tids.push_back(thread.progress.tid);
    ++group.names[name.empty() ? "(no name)" : Printable(name)];
    if (thread.progress.ran()) group.cpu_ns += std::max<int64_t>(0, thread.progress.cpu_ns.value_or(0));
  }
  return groups;
}

void AddGroup(const ThreadGroup& group, std::vector<std::string>* lines) {
  std::vector<Counted> names;
  for (const auto& [name, count] : group.names) names.push_back({name, count});
  std::ranges::stable_sort(names, std::greater(), &Counted::count);
  lines->push_back("");
  lines->push_back(Count(std::ssize(group.tids), "thread") + ", " + std::string(StateInWords(*group.first)) + ": " +
                   CountedList(names));
  lines->push_back((group.tids.size() == 1 ? "  tid " : "  tids ") + Ranges({group.tids.begin(), group.tids.end()}));
  lines->push_back("  " + ProgressInWords(group.first->progress));
  if (group.cpu_ns == 0) return;
  lines->push_back("  used " + TimeInWords(group.cpu_ns) + " of processor time" +
                   (group.tids.size() == 1 ? ", " + ShareInWords(group.first->progress.core_share) : " together"));
}

void AddFindings(const Comparison& comparison, std::vector<std::string>* lines) {
  for (const v1::Finding& finding : comparison.findings()) {
    lines->push_back("");
    lines->push_back(std::string(SeverityInWords(finding.severity())) + ": " + Printable(finding.explanation()));
    for (const std::string& detail : finding.details()) lines->push_back("  " + Printable(detail));
  }
}

}  // namespace

std::string ExplainComparison(const Comparison& comparison, const std::vector<JudgedThread>& threads) {
  const int64_t between_ns = BetweenNs(comparison);
  switch (comparison.verdict()) {
    case Comparison::DEADLOCKED:
      return FindingOf(comparison, {v1::Finding::DEADLOCK, v1::Finding::SELF_DEADLOCK}) + "; in both dumps, " +
             TimeInWords(between_ns) + " apart";
    case Comparison::SPINNING:
      return LoopsInWords(comparison, threads);
    case Comparison::STUCK:
      return MostFrequent(threads, Comparison::STUCK) + "; " + Others(threads, between_ns);
    case Comparison::SLOW:
      return MostFrequent(threads, Comparison::SLOW) + "; slow, not stuck: " + Count(CountOf(threads, Moved), "thread") +
             " moved in " + TimeInWords(between_ns);
    case Comparison::WORKING:
      return WorkingInWords(threads, between_ns);
    case Comparison::IDLE:
      return IdleInWords(threads, between_ns);
    default:
      return Others(threads, between_ns) + "; what the threads wait for is not known";
  }
}

std::vector<std::string> ComparisonLines(const v1::Dump& dump, int dump_count, const Comparison& comparison,
                                         const std::vector<JudgedThread>& threads) {
  const v1::Process& process = dump.process();
  std::vector<std::string> lines{
      Printable(process.display_name()) + " (pid " + std::to_string(process.pid()) +
          "): " + std::string(VerdictInWords(comparison.verdict())) + ": " + comparison.explanation(),
      "before " + Printable(comparison.before()),
      "after  " + Printable(comparison.after()) + " · " + TimeInWords(BetweenNs(comparison)) + " later" +
          (dump_count > 2 ? " · " + std::to_string(dump_count) + " dumps compared" : "")};
  AddFindings(comparison, &lines);
  const std::vector<ThreadGroup> groups = GroupThreads(threads);
  int64_t left_out = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i < kMaxGroups) {
      AddGroup(groups[i], &lines);
    } else {
      left_out += std::ssize(groups[i].tids);
    }
  }
  if (left_out > 0) {
    lines.push_back("");
    lines.push_back(Count(left_out, "more thread") + ": stackctl diff -o json has all");
  }
  return lines;
}

}  // namespace stackd

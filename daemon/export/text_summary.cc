#include "daemon/export/text_summary.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "daemon/export/printable.h"
#include "daemon/export/wording.h"

namespace stackd {
namespace {

// So many threads that were not captured for one reason have a line each; more are one line.
constexpr size_t kMaxThreadLines = 10;

// "blocks signal 34": the number of the signal stands in the state of the threads alone.
std::string BlockedSignal(const v1::Dump& dump) {
  constexpr std::string_view kBlocks = "blocks ";
  for (const v1::Thread& thread : dump.threads()) {
    if (thread.status() != v1::Thread::SIGNAL_BLOCKED || !thread.state().starts_with(kBlocks)) continue;
    return Printable(thread.state().substr(kBlocks.size()));
  }
  return "the dump signal";
}

std::string CountsInWords(const v1::Dump& dump) {
  const v1::ThreadCounts& counts = dump.thread_counts();
  int of_agent = 0;
  for (const v1::StackGroup& group : dump.groups()) of_agent += group.is_agent() ? group.thread_count() : 0;
  const int listed = counts.listed() - of_agent, captured = counts.captured() - of_agent;
  const int asleep_count = dump.pause().not_paused();
  std::string text = Count(listed, "thread");
  const std::string asleep = asleep_count > 0 ? " (" + Grouped(asleep_count) + " asleep, without a signal)" : "";
  if (listed > 0 && captured == listed) return text + ", all captured" + asleep;
  text += ", " + Grouped(captured) + " captured" + asleep;
  const auto add = [&](int count, const std::string& what) {
    if (count > 0) text += ", " + Grouped(count) + " " + what;
  };
  if (counts.signal_blocked() > 0) {
    add(counts.signal_blocked(), (counts.signal_blocked() == 1 ? "blocks " : "block ") + BlockedSignal(dump));
  }
  add(counts.uninterruptible(), "uninterruptible");
  add(counts.stopped(), "stopped");
  add(counts.timed_out(), "did not answer");
  add(counts.ring_full(), "found no room in the ring");
  add(counts.signal_queue_full(), "could not be signalled");
  add(counts.agent_fault(), "met a fault in the agent");
  add(counts.running(), "not interrupted");
  add(counts.exited(), "exited");
  return text;
}

std::string_view TriggerInWords(v1::Dump::Trigger trigger) {
  switch (trigger) {
    case v1::Dump::REQUEST:
      return "on request";
    case v1::Dump::HANG:
      return "because of a hang";
    case v1::Dump::CRASH:
      return "because of a crash";
    case v1::Dump::SELF:
      return "asked for by the program";
    default:
      return "for an unknown reason";
  }
}

std::string Attribute(const v1::Process& process, const char* key) {
  const auto found = process.resource_attributes().find(key);
  return found == process.resource_attributes().end() ? "" : found->second;
}

// "checkout (pid 7 in container app of pod shop/checkout-0 on node-1)"; outside of Kubernetes "checkout (pid 7 on HOST)".
std::string ProcessInWords(const v1::Process& process) {
  std::string text = process.display_name() + " (pid " + std::to_string(process.pid());
  const std::string pod = Attribute(process, "k8s.pod.name"), container = Attribute(process, "k8s.container.name"),
                    space = Attribute(process, "k8s.namespace.name"), node = Attribute(process, "k8s.node.name");
  if (!container.empty()) text += " in container " + container;
  if (!pod.empty()) text += (container.empty() ? " in pod " : " of pod ") + (space.empty() ? "" : space + "/") + pod;
  const std::string& host = pod.empty() ? process.hostname() : node;
  if (!host.empty()) text += " on " + host;
  return Printable(text + ")");
}

// "CPython 3.11.7, Node.js 20.20.2; 10,000 tasks"; empty where all code is native.
std::string RuntimesInWords(const v1::Dump& dump) {
  std::string text;
  for (const v1::Runtime& runtime : dump.runtimes()) text += (text.empty() ? "" : ", ") + runtime.name();
  if (dump.task_count() > 0) {
    const v1::Language language = dump.runtimes_size() == 1 ? dump.runtimes(0).language() : v1::LANGUAGE_UNSPECIFIED;
    text += (text.empty() ? "" : "; ") + Count(dump.task_count(), TaskNoun(language));
  }
  return Printable(text);
}

}  // namespace

std::string ThreadName(const v1::Thread& thread) { return thread.name().empty() ? "(no name)" : Printable(thread.name()); }

const v1::Thread* CrashedThread(const v1::Dump& dump) {
  if (!dump.has_crash()) return nullptr;
  for (const v1::Thread& thread : dump.threads()) {
    if (thread.tid() == dump.crash().tid()) return &thread;
  }
  return nullptr;
}

const v1::Stack* StackOf(const v1::Dump& dump, const v1::Thread& thread) {
  const bool known = thread.has_stack() && thread.stack() >= 0 && thread.stack() < dump.stacks_size();
  return known ? &dump.stacks(thread.stack()) : nullptr;
}

void WriteHeading(const v1::Dump& dump, Piecewise* out) {
  std::string counts = CountsInWords(dump) + ", in " + InWords(dump.capture_duration());
  if (dump.pause().has_max()) counts += "; longest pause " + InWords(dump.pause().max());
  *out << ProcessInWords(dump.process());
  if (dump.has_crash()) {
    *out << " crashed: " << Printable(dump.crash().explanation());
  } else if (dump.has_hang()) {
    *out << " hangs: " << Printable(dump.hang().explanation());
  } else {
    *out << ": " << counts;
  }
  *out << "\ndump " << Printable(dump.name()) << " · " << InWords(dump.create_time()) << " · "
       << TriggerInWords(dump.trigger());
  if (dump.state() == v1::Dump::PARTIAL) *out << " · PARTIAL";
  if (!dump.stored()) *out << " · not stored";
  *out << "\n";
  if (dump.has_crash() || dump.has_hang()) *out << counts << "\n";
  if (const std::string runtimes = RuntimesInWords(dump); !runtimes.empty()) *out << runtimes << "\n";
}

void WriteFindings(const v1::Dump& dump, Piecewise* out) {
  for (const v1::Finding& finding : dump.findings()) {
    if (finding.severity() == v1::Finding::HARMLESS) continue;
    const char* severity = finding.severity() == v1::Finding::HANG ? "HANG" : "SUSPICIOUS";
    *out << "\n" << severity << ": " << Printable(finding.explanation()) << "\n";
    for (const std::string& detail : finding.details()) *out << "  " << Printable(detail) << "\n";
  }
}

void WriteHarmless(const v1::Dump& dump, Piecewise* out) {
  bool first = true;
  for (const v1::Finding& finding : dump.findings()) {
    if (finding.severity() != v1::Finding::HARMLESS) continue;
    *out << (first ? "\n" : "") << "Harmless: " << Printable(finding.explanation()) << "\n";
    first = false;
  }
}

void WriteNotCaptured(const v1::Dump& dump, Piecewise* out) {
  std::map<std::string, std::vector<const v1::Thread*>> threads_by_state;
  for (const v1::Thread& thread : dump.threads()) {
    if (!thread.has_stack()) threads_by_state[thread.state()].push_back(&thread);
  }
  if (threads_by_state.empty()) return;
  *out << "\nNot captured:\n";
  for (const auto& [state, threads] : threads_by_state) {
    if (threads.size() > kMaxThreadLines) {
      std::vector<int32_t> tids;
      for (const v1::Thread* thread : threads) tids.push_back(thread->tid());
      *out << "  " << Count(std::ssize(threads), "thread") << ": " << Printable(state) << "\n    tids "
           << Ranges({tids.begin(), tids.end()}) << "\n";
      continue;
    }
    for (const v1::Thread* thread : threads) {
      *out << "  tid " << std::to_string(thread->tid()) << " " << ThreadName(*thread) << ": " << Printable(state) << "\n";
    }
  }
}

void WriteNotes(const v1::Dump& dump, Piecewise* out) {
  if (dump.notes().empty()) return;
  *out << "\nNotes:\n";
  for (const std::string& note : dump.notes()) *out << "  " << Printable(note) << "\n";
}

}  // namespace stackd

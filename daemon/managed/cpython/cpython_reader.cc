#include "daemon/managed/cpython/cpython_reader.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/managed/cpython/asyncio_tasks.h"
#include "daemon/managed/cpython/decode_trace.h"
#include "daemon/managed/cpython/find_gil.h"
#include "daemon/managed/cpython/find_rlock.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

struct Seen {
  std::set<uint64_t> versions;  // PY_VERSION_HEX of those that could be read
  std::set<uint64_t> unknown_versions;
  std::set<uint64_t> unreadable_versions;
  std::set<uint64_t> interpreters;
  std::set<int32_t> gil_holders;
};

void AddTrace(int32_t tid, const ManagedTrace& trace, CpythonTraceDecoder* decoder, Seen* seen, ManagedFacts* facts) {
  if (trace.status == STACKD_WALK_UNKNOWN_VERSION) {
    seen->unknown_versions.insert(trace.version);
    return;
  }
  if (trace.status == STACKD_WALK_UNREADABLE && trace.instance_avma == 0) {
    seen->unreadable_versions.insert(trace.version);
    return;
  }
  seen->versions.insert(trace.version);
  seen->interpreters.insert(trace.instance_avma);
  ManagedThread& thread = facts->threads[tid];
  // How the walk before it ended.
  const bool is_end = trace.status != STACKD_WALK_WHOLE && trace.frames.empty();
  if (is_end && !thread.stacks.empty() && thread.stacks.back().language == Language::kPython) {
    thread.stacks.back().problem = WalkProblem(trace.status);
    return;
  }
  if ((trace.flags & STACKD_MANAGED_HOLDS_GIL) != 0) {
    thread.holds_gil = true;
    seen->gil_holders.insert(tid);
  }
  ManagedStack stack = decoder->Decode(trace);
  if (!stack.frames.empty() || !stack.problem.empty()) thread.stacks.push_back(std::move(stack));
}

void Describe(const Seen& seen, ManagedFacts* facts) {
  std::set<uint64_t> known = seen.versions;
  known.insert(seen.unreadable_versions.begin(), seen.unreadable_versions.end());
  for (uint64_t version : known) {
    facts->runtimes.push_back({.language = Language::kPython,
                               .name = CpythonName(version),
                               .problem = seen.unreadable_versions.contains(version)
                                              ? "threads of it may not read their own memory (a seccomp filter forbids "
                                                "process_vm_readv): their stacks show C functions alone"
                                              : ""});
  }
  for (uint64_t version : seen.unknown_versions) {
    facts->runtimes.push_back({.language = Language::kPython,
                               .name = version == 0 ? "CPython" : CpythonName(version),
                               .problem = "this stackd knows the frames of CPython 3.8 to 3.14 with a GIL, and not of this "
                                          "build: its stacks show C functions alone"});
  }
}

// Threads that have Python frames.
std::vector<ThreadWait> SleepersOf(const Capture& capture) {
  std::vector<ThreadWait> sleeping;
  for (const ThreadCapture& thread : capture.threads) {
    const auto is_python = [](const ManagedTrace& trace) { return trace.runtime == STACKD_RUNTIME_CPYTHON; };
    if (!thread.call || std::ranges::none_of(thread.traces, is_python)) continue;
    sleeping.push_back({.tid = thread.tid, .rsp_avma = thread.registers.value[Registers::kRsp], .call = thread.call});
  }
  return sleeping;
}

// Frames are not asked for here: an interpreter that a program has linked statically is seen by waits of an earlier look.
bool MayHavePython(const WaitInput& input) {
  if (!input.waits.empty()) return true;
  if (input.capture.map == nullptr) return false;
  return std::ranges::any_of(input.capture.map->mappings(), [](const Mapping& mapping) {
    const std::string_view file = std::string_view(mapping.path).substr(mapping.path.rfind('/') + 1);
    return file.starts_with("python3") || file.starts_with("libpython3");
  });
}

}  // namespace

void CpythonReader::Read(const RuntimeInput& input, ManagedFacts* facts) {
  Seen seen;
  CpythonTraceDecoder decoder;
  size_t left_out = 0;
  for (const ThreadCapture& thread : input.capture.threads) {
    if (!thread.traces.empty() && MonotonicNs() >= input.deadline_ns) {
      ++left_out;
      continue;
    }
    for (const ManagedTrace& trace : thread.traces) {
      if (trace.runtime == STACKD_RUNTIME_CPYTHON) AddTrace(thread.tid, trace, &decoder, &seen, facts);
    }
  }
  Describe(seen, facts);
  if (left_out != 0) {
    facts->notes.push_back("time was up before the Python frames of " + std::to_string(left_out) +
                           " threads were looked for");
  }
  if (input.frames_only) return;
  for (uint64_t version : seen.versions)
    AddAsyncioTasks(input, static_cast<uint32_t>(version >> 16), seen.interpreters, facts);
  if (seen.interpreters.empty() || input.memory == nullptr || MonotonicNs() >= input.deadline_ns) return;
  std::ranges::move(FindGilWaits(input.capture.threads, seen.interpreters, seen.gil_holders, *input.memory),
                    std::back_inserter(facts->waits));
  std::ranges::move(FindRLockWaits(SleepersOf(input.capture), *input.memory, input.deadline_ns),
                    std::back_inserter(facts->waits));
}

void CpythonReader::ReadWaits(const WaitInput& input, std::vector<ManagedWait>* waits) {
  if (!MayHavePython(input)) return;
  std::ranges::move(ReadGilWaits(input), std::back_inserter(*waits));
  std::ranges::move(FindRLockWaits(input.sleeping, input.memory, input.deadline_ns), std::back_inserter(*waits));
}

}  // namespace stackd

#include "daemon/pipeline/dump_stages.h"

#include <cstddef>

#include "daemon/analyze/findings/finding.h"
#include "daemon/analyze/waits/wait.h"
#include "daemon/assemble/assemble.h"
#include "daemon/fingerprint/hang_fingerprint.h"
#include "daemon/pipeline/frame_budget.h"

namespace stackd {
namespace {

// Gives back `held` with the last that has the dump.
std::shared_ptr<v1::Dump> Holding(HeldBytes held, std::shared_ptr<v1::Dump> dump) {
  auto both = std::make_shared<std::pair<HeldBytes, std::shared_ptr<v1::Dump>>>(std::move(held), std::move(dump));
  return {both, both->second.get()};
}

void KeepLonger(const EarlierStacks& earlier, const Capture& capture, std::vector<NativeStack>* unwound) {
  for (size_t i = 0; i < unwound->size(); ++i) {
    NativeStack& stack = (*unwound)[i];
    if (capture.threads[i].has_stack) stack = earlier.Longer(capture.threads[i].tid, std::move(stack));
  }
}

void KeepBetter(const EarlierStacks& earlier, std::vector<NamedStack>* stacks) {
  for (NamedStack& stack : *stacks) {
    for (size_t i = 0; i < stack.locations.size(); ++i) {
      stack.locations[i] = earlier.Better(stack.native.frames[i], std::move(stack.locations[i]));
    }
  }
}

// Appends the functions that people would be shown.
void AppendFunctions(const NamedStack& stack, std::vector<std::string>* functions) {
  auto calls = stack.runtime_calls.begin();
  for (size_t i = 0; i <= stack.locations.size(); ++i) {
    bool replaced = i == stack.locations.size();
    for (; calls != stack.runtime_calls.end() && calls->native_frame <= i; ++calls) {
      for (const RuntimeFrame& frame : calls->frames) functions->push_back(frame.function);
      replaced = replaced || calls->replaces;
    }
    if (replaced) continue;
    if (stack.locations[i]->frames.empty()) functions->emplace_back();
    for (const SourceFrame& frame : stack.locations[i]->frames) functions->push_back(frame.function);
  }
}

}  // namespace

MadeDump DumpStages::Run(const Capture& capture, int64_t deadline_ns, const std::string& id, StageTimes* times,
                         const EarlierStacks* earlier, const NameCode& name_code) {
  Stopwatch stopwatch;
  std::vector<NativeStack> unwound = unwind_.Unwind(capture);
  if (earlier != nullptr) KeepLonger(*earlier, capture, &unwound);
  DistinctStacks distinct = Distinct(capture, std::move(unwound));
  times->unwind_ns = stopwatch.LapNs();
  AddTaskStacks(capture.managed, &distinct);
  std::string cut;
  HeldBytes held = FitFrames(dumps_, CrashedStack(capture, distinct), &distinct.stacks, &cut);
  naming_.Name(capture, name_code, deadline_ns, &distinct.stacks);
  if (earlier != nullptr) KeepBetter(*earlier, &distinct.stacks);
  MergeManagedStacks(capture, &distinct);
  times->name_ns = stopwatch.LapNs();
  auto dump = AssembleDump(
      capture, distinct.of_thread, distinct.stacks, [this](const Module& module) { return symbolizer_->Quality(module); },
      id);
  times->assemble_ns = stopwatch.LapNs();
  ExplainWaits(
      capture, [&](const std::vector<DataAddress>& addresses) { return naming_.NameVariables(addresses, deadline_ns); },
      dump.get());
  FindHangs(capture, dump.get());
  if (capture.hang) AddHangFingerprint(capture.hang->loop_function, dump.get());
  if (!cut.empty()) dump->add_notes(cut);
  dump->set_stored(true);
  times->analyze_ns = stopwatch.LapNs();
  measures_->unwind.Observe(times->unwind_ns);
  measures_->symbolize.Observe(times->name_ns);
  return {Holding(std::move(held), std::move(dump)), std::move(distinct.stacks)};
}

std::vector<std::string> DumpStages::Functions(const Capture& capture, int64_t deadline_ns) {
  DistinctStacks distinct = Distinct(capture, unwind_.Unwind(capture));
  naming_.Name(capture, /*name_code=*/{}, deadline_ns, &distinct.stacks);
  MergeManagedStacks(capture, &distinct);
  std::vector<std::string> functions;
  for (const int stack : distinct.of_thread) {
    if (stack >= 0) AppendFunctions(distinct.stacks[stack], &functions);
  }
  return functions;
}

}  // namespace stackd

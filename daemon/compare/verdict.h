// What the progress of threads, their waits and the findings of both dumps mean together.
#pragma once

#include <vector>

#include "daemon/compare/thread_progress.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct JudgedThread {
  ThreadProgress progress;
  // UNSPECIFIED: what there is does not tell.
  v1::DumpComparison::Verdict verdict = v1::DumpComparison::VERDICT_UNSPECIFIED;
};

// What only several dumps show: SPINNING, one finding for each thread, and LIVELOCK, one for all of them.
std::vector<v1::Finding> FindLoops(const std::vector<ThreadProgress>& threads, int64_t between_ns);

// Judges each thread, in the order of `threads`.
std::vector<JudgedThread> JudgeThreads(const v1::Dump& before, const v1::Dump& after, const std::vector<v1::Finding>& loops,
                                       std::vector<ThreadProgress> threads);

// Verdict on the whole process: the worst of its threads'.
v1::DumpComparison::Verdict JudgeProcess(const std::vector<JudgedThread>& threads);

// Rank of a verdict: the less, the worse.
int RankOf(v1::DumpComparison::Verdict verdict);

// The thread in which the agent takes the dump, and which has therefore always just run.
bool IsOwnThread(const ThreadProgress& thread);

// Whether it waits for the same in both dumps.
bool WaitsForTheSame(const ThreadProgress& thread);

}  // namespace stackd

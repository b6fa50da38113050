// Counted samples in a format for people or tools: stacks with the time that threads were in them. What a thread waited for
// stands as the innermost frame, so that a flame graph shows who waited for what.
#pragma once

#include <cstdint>

#include "client/record/stack_samples.h"
#include "daemon/export/export.h"

namespace stackd {

struct RecordTimes {
  int64_t begin_wall_ns;
  int64_t duration_ns;
};

// The time that a sample stands for: on an average, as samples may be late or missed.
int64_t PeriodNs(const StackSamples& samples, const RecordTimes& times);

// The stacks with the most time first, each with its part of the time of all threads; then how long which were idle.
void WriteRecordText(const StackSamples& samples, const RecordTimes& times, const Sink& sink);
// "process;thread;outermost;...;innermost;[waits for ...] count" lines.
void WriteRecordFolded(const StackSamples& samples, const Sink& sink);
// pprof's profile.proto in gzip: samples and time, with labels.
void WriteRecordPprof(const StackSamples& samples, const RecordTimes& times, const Sink& sink);
// JSON for www.speedscope.app: profiles of threads and of tasks, in time.
void WriteRecordSpeedscope(const StackSamples& samples, const RecordTimes& times, const Sink& sink);

}  // namespace stackd

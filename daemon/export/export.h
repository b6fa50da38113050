// A Dump in a format for people or tools. Pure; one file per format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Takes the output piece by piece; false: the reader is gone, stop.
using Sink = std::function<bool(std::string_view)>;

// Text as `stackctl dump` prints it: groups largest first.
void ExportText(const v1::Dump& dump, const Sink& sink);
// Per thread, like gdb's `thread apply all bt`.
void ExportTextByThread(const v1::Dump& dump, const Sink& sink);
// proto3 JSON of the Dump, one object, streamed.
void ExportJson(const v1::Dump& dump, const Sink& sink);
// "process;thread;outermost;...;innermost count" lines.
void ExportFolded(const v1::Dump& dump, const Sink& sink);
// pprof's profile.proto in gzip: a sample for each thread and each task, with labels.
void ExportPprof(const v1::Dump& dump, const Sink& sink);
// JSON for www.speedscope.app: profiles of threads and of tasks, with a weight for each stack.
void ExportSpeedscope(const v1::Dump& dump, const Sink& sink);

// The stack of one thread as the text formats show it; "" if it has none.
void ExportStack(const v1::Dump& dump, int32_t tid, const Sink& sink);

}  // namespace stackd

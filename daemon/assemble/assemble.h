// A capture with its unwound and named stacks becomes a Dump: distinct stacks, groups of equal ones, counts, notes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/capture/named_stack.h"
#include "daemon/symbolize/symbolizer.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// `stack_of_thread[i]` is the index into `stacks` of `capture.threads[i]`, or -1. `dump_id` is the last part of the name.
// The last of `stacks` are those of `capture.managed.native_task_stacks`, one for one.
//
// Frames and stacks that occur several times are one object in it: read it or copy it, but change no frame or stack of it.
std::shared_ptr<v1::Dump> AssembleDump(const Capture& capture, const std::vector<int>& stack_of_thread,
                                       const std::vector<NamedStack>& stacks,
                                       const std::function<SymbolQuality(const Module&)>& quality,
                                       const std::string& dump_id);

// What is known of a dump before its stacks are unwound: name, process, trigger, times, counts.
v1::Dump DumpHeader(const Capture& capture, const std::string& dump_id);

}  // namespace stackd

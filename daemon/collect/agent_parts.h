// What captures of one process work with.
#pragma once

#include <memory>
#include <utility>

#include "daemon/base/byte_budget.h"
#include "daemon/base/text.h"
#include "daemon/capture/counters.h"
#include "daemon/collect/agent_process.h"
#include "daemon/collect/agent_ring.h"
#include "daemon/collect/crash_claim.h"
#include "daemon/collect/process_modules.h"
#include "daemon/collect/task_tables.h"
#include "daemon/collect/thread_sampler.h"
#include "daemon/collect/wait_collector.h"
#include "daemon/modules/module_cache.h"
#include "daemon/ring/ring.h"

namespace stackd {

// What the sessions of a collector share. Outlives them; `budgets` may be nullptr: then there is no limit.
struct SharedParts {
  ModuleCache* modules;
  CollectorCounters* counters;
  MemoryBudgets* budgets;
  AskFlock has_flock;
};

// Each part uses parts above it only.
struct AgentParts {
  AgentParts(Fd socket, uid_t peer_uid, const stackd_hello& hello, ProcessDescription description, ProcessFiles files,
             std::unique_ptr<Ring> shared_ring, const SharedParts& shared)
      : counters(shared.counters),
        stacks_budget(shared.budgets == nullptr ? nullptr : &shared.budgets->stacks),
        process(std::move(socket), peer_uid, hello, std::move(description), std::move(files)),
        memory(std::move(shared_ring)),
        modules(&process, memory.get(), shared.modules, FieldText(hello.exe),
                shared.budgets == nullptr ? nullptr : &shared.budgets->images),
        wait_collector(&process, &wait_reader, &sampler, shared.has_flock) {}

  CollectorCounters* const counters;
  ByteBudget* const stacks_budget;  // nullptr: no limit
  AgentProcess process;
  const std::unique_ptr<Ring> memory;
  RuntimeReportFile report_file;
  CrashClaim crash{memory.get(), counters};
  CaptureTurns turns;
  AgentRing ring{memory.get(), &process, &crash, counters};
  ProcessModules modules;
  TaskTables tasks{process.socket_fd()};
  ThreadSampler sampler{&process, &ring, &turns, &crash};
  WaitReader wait_reader{&process, memory.get(), &modules};
  WaitCollector wait_collector;
};

}  // namespace stackd

#include "daemon/collect/collector.h"

#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/collect/agent_server.h"
#include "daemon/collect/crash_intake.h"
#include "daemon/collect/heartbeats.h"
#include "daemon/collect/module_prefetcher.h"
#include "daemon/collect/own_dump_queue.h"
#include "daemon/collect/served_dir.h"
#include "daemon/collect/session_table.h"
#include "daemon/crashes/quarantine.h"
#include "daemon/crashes/spool.h"
#include "daemon/crashes/spool_intake.h"
#include "daemon/process/file_lock_procfs.h"

namespace stackd {

// Each part uses parts above it only.
struct Collector::State {
  CollectorOptions options;
  Fd dir_lock;
  std::vector<std::string> problems;
  CollectorCounters counters;
  ModuleCache modules;
  std::unique_ptr<Spool> spool;  // nullptr: the folder cannot be used
  std::unique_ptr<Quarantine> quarantine;
  std::shared_ptr<SpoolIntake> spool_intake;
  CrashIntake crash_intake;
  ModulePrefetcher prefetcher;
  OwnDumpQueue own_dumps{&counters};
  SessionTable sessions;
  std::unique_ptr<AgentServer> server;

  void OpenSpool();
  // Calls `look` with the session of a process; kNotFound if the process is not connected.
  template <typename Look>
  std::invoke_result_t<Look, AgentSession&> With(const std::string& process_id, Look look) const {
    const auto session = sessions.Find(process_id);
    if (session != nullptr) return look(*session);
    return Error(Code::kNotFound, "processes/" + process_id + " is not connected: it has ended, or never had the agent",
                 "PROCESS_EXITED");
  }
};

void Collector::State::OpenSpool() {
  auto opened = Spool::Open(options.dir);
  if (!opened) {
    problems.push_back("crashes that no daemon takes are lost: " + opened.error().message);
    return;
  }
  spool = std::move(*opened);
  if (!spool->notice().empty()) problems.push_back(spool->notice());
  auto opened_quarantine = Quarantine::Open(options.dir);
  if (opened_quarantine) {
    quarantine = std::move(*opened_quarantine);
  } else {
    problems.push_back("a spool file that ends stackd is tried again and again: " + opened_quarantine.error().message);
  }
  spool_intake = std::make_shared<SpoolIntake>(spool.get(), quarantine.get(), &modules, &counters);
}

Result<std::unique_ptr<Collector>> Collector::Start(CollectorOptions options) {
  // A ring must be possible at all: better said now than to each agent.
  if (auto ring = Ring::Create(options.ring_bytes); !ring) return std::unexpected(ring.error());
  auto dir = ServeDir(options.dir);
  if (!dir) return std::unexpected(dir.error());
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->dir_lock = std::move(dir->lock);
  state->OpenSpool();
  state->server = std::make_unique<AgentServer>(
      AgentServer::Parts{.options = &state->options,
                         .shared = {&state->modules, &state->counters, state->options.budgets,
                                    state->options.has_flock ? state->options.has_flock : HasFlock},
                         .spool = state->spool.get(),
                         .spool_intake = state->spool_intake,
                         .crash_intake = &state->crash_intake,
                         .prefetcher = &state->prefetcher,
                         .own_dumps = &state->own_dumps,
                         .sessions = &state->sessions},
      std::move(dir->listener));
  if (auto started = state->server->Start(); !started) return std::unexpected(started.error());
  return std::unique_ptr<Collector>(new Collector(std::move(state)));
}

Collector::Collector(std::unique_ptr<State> state) : state_(std::move(state)) {}

Collector::~Collector() {
  state_->server->Stop();
  if (state_->spool_intake != nullptr) state_->spool_intake->Stop();
  state_->own_dumps.Stop();
  unlink((state_->options.dir + "/" STACKD_SOCKET_NAME).c_str());
}

std::vector<ProcessDescription> Collector::Processes() const {
  const auto sessions = state_->sessions.All();
  std::vector<ProcessDescription> result;
  for (auto it = sessions.rbegin(); it != sessions.rend(); ++it) result.push_back((*it)->process().Describe());
  return result;
}

Result<std::shared_ptr<Capture>> Collector::CaptureProcess(const std::string& process_id, const CaptureRequest& request) {
  return state_->With(process_id, [&](AgentSession& session) {
    auto capture = session.threads().CaptureThreads(request);
    if (capture) state_->sessions.NameProcesses(session.process(), capture->get());
    return capture;
  });
}

Result<std::shared_ptr<Capture>> Collector::Outline(const std::string& process_id) const {
  return state_->With(process_id, [](AgentSession& session) { return session.threads().Outline(); });
}

void Collector::ConfirmWaits(const std::string& process_id, const LookAtLocks& look, int64_t deadline_ns,
                             Capture* capture) {
  const auto session = state_->sessions.Find(process_id);
  if (session == nullptr) {
    for (ManagedWait& wait : capture->managed.waits) wait.owner_tid = 0;
    return;
  }
  WaitCollector& waits = session->parts().wait_collector;
  if (!capture->managed.waits.empty()) waits.DropEndedCyclesOfRuntimes(look, deadline_ns, capture);
  if (!capture->crash) waits.DropWaitsThatEnded(capture);
}

bool Collector::ReadPerfMap(const std::string& process_id, int64_t deadline_ns, std::function<void(const Fd&)> read) const {
  const auto session = state_->sessions.Find(process_id);
  if (session == nullptr || !session->process().TakesCommands()) return true;
  const std::string path = "/tmp/perf-" + std::to_string(session->process().Describe().pid) + ".map";
  auto opened = std::move(session->process().questions().OpenFiles(std::span(&path, 1), deadline_ns).front());
  if (!opened || !opened->valid()) return true;
  // It may lie on a server that does not answer.
  const auto read_file = [file = std::make_shared<const Fd>(std::move(*opened)),
                          read = std::move(read)](const ProcessFiles&) {
    struct stat status{};
    if (fstat(file->get(), &status) == 0 && S_ISREG(status.st_mode)) read(*file);
  };
  return session->process().memory()->Run(deadline_ns, read_file);
}

void Collector::SayDumpIsRead(const std::string& process_id) {
  if (const auto session = state_->sessions.Find(process_id)) session->SayDumpIsRead();
}

Result<std::vector<ThreadSchedStat>> Collector::ReadSchedStats(const std::string& process_id) const {
  return state_->With(process_id, [](AgentSession& s) { return s.parts().sampler.ReadSchedStats(/*gives_way=*/true); });
}

Result<std::vector<ThreadWait>> Collector::SampleWaits(const std::string& process_id, int64_t deadline_ns) {
  return state_->With(process_id, [&](AgentSession& session) {
    state_->counters.wait_samples++;
    return session.parts().sampler.SampleWaits(deadline_ns, /*gives_way=*/true);
  });
}

Result<std::vector<FutexWord>> Collector::ReadFutexes(const std::string& process_id,
                                                      std::span<const FutexWait> waits) const {
  return state_->With(process_id, [&](AgentSession& session) {
    return session.parts().wait_reader.ReadFutexes({waits.begin(), waits.end()});
  });
}

Result<std::vector<WaitedFd>> Collector::DescribeFds(const std::string& process_id, std::span<const int32_t> fds,
                                                     int64_t deadline_ns) const {
  return state_->With(process_id, [&](AgentSession& session) -> Result<std::vector<WaitedFd>> {
    return session.process().questions().DescribeFds(fds, deadline_ns);
  });
}

Result<SigtermSigns> Collector::ReadSigtermSigns(const std::string& process_id) const {
  return state_->With(process_id, [](AgentSession& s) { return s.parts().wait_reader.ReadSigtermSigns(); });
}

Result<std::vector<Heartbeat>> Collector::Heartbeats(const std::string& process_id) const {
  return state_->With(process_id, [](AgentSession& session) -> Result<std::vector<Heartbeat>> {
    return ReadHeartbeats(*session.parts().memory);
  });
}

std::vector<int64_t> Collector::ReadProcessSchedStats(const std::string& process_id) const {
  const auto session = state_->sessions.Find(process_id);
  return session == nullptr ? std::vector<int64_t>{} : session->process().ReadProcessSchedStats();
}

ProcessActivity Collector::ReadActivity(const std::string& process_id) const {
  const auto session = state_->sessions.Find(process_id);
  if (session == nullptr) return {};
  const ProcessFiles& files = session->process().files();
  ProcessActivity activity{.parent_pid = files.ParentPid()};
  if (const auto ticks = files.RunTicks()) activity.cpu_time_ns = *ticks * (kNsPerSecond / sysconf(_SC_CLK_TCK));
  return activity;
}

char Collector::StateOf(const std::string& process_id, int32_t tid) const {
  const auto session = state_->sessions.Find(process_id);
  return session == nullptr ? 0 : session->process().StateOf(tid);
}

void Collector::OnDumpRequest(std::function<void(const OwnDumpRequest&)> handler) {
  state_->own_dumps.Start(std::move(handler));
}

void Collector::EndAttempts() {
  if (state_->spool_intake != nullptr) state_->spool_intake->EndAttempts();
}

void Collector::OnCrash(CrashHandler handler) {
  state_->crash_intake.Start(handler);
  if (state_->spool_intake == nullptr) return;
  // A file does not tell where its process ran, but on which host.
  state_->spool_intake->Start([handler = std::move(handler), locate = state_->options.locate](
                                  std::shared_ptr<Capture> capture, const std::function<void()>& release) {
    if (locate) capture->process.resource_attributes = locate(capture->process.hostname, {});
    handler(std::move(capture), release);
  });
}

bool Collector::HurriesCrashes() const { return state_->crash_intake.InAHurry(); }

std::vector<std::string> Collector::Problems() const { return state_->problems; }

RingUsage Collector::Rings() const {
  RingUsage usage;
  state_->sessions.ForEach([&](AgentSession& session) {
    const Ring& ring = *session.parts().memory;
    usage.agents++;
    usage.capacity_bytes += int64_t{ring.slot_count()} * STACKD_SLOT_BYTES;
    usage.used_bytes += int64_t{ring.UsedSlots()} * STACKD_SLOT_BYTES;
  });
  return usage;
}

std::map<std::string, int64_t> Collector::Counters() const {
  const CollectorCounters& c = state_->counters;
  return {
      {"captures", c.captures},
      {"wait_samples", c.wait_samples},
      {"ring_records", c.ring_records},
      {"ring_corrupt_records", c.ring_corrupt_records},
      {"ring_late_records", c.ring_late_records},
      {"ring_dropped_no_slot", c.ring_dropped_no_slot},
      {"ring_dropped_late", c.ring_dropped_late},
      {"ring_dropped_agent_fault", c.ring_dropped_agent_fault},
      {"ring_dropped_crash", c.ring_dropped_crash},
      {"crashes_taken", c.crashes_taken},
      {"crashes_tentative", c.crashes_tentative},
      {"crashes_hurried", c.crashes_hurried},
      {"crashes_repeated", c.crashes_repeated},
      {"spool_taken", c.spool_taken},
      {"spool_refused", c.spool_refused},
      {"spool_set_aside", c.spool_set_aside},
      {"agents_accepted", c.agents_accepted},
      {"agents_rejected", c.agents_rejected},
      {"agents_displaced", c.agents_displaced},
      {"dump_requests_refused", c.dump_requests_refused},
  };
}

}  // namespace stackd

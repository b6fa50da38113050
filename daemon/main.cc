// The daemon: builds the stages, serves until it is told to end.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "daemon/access/access_rules.h"
#include "daemon/action/on_dump.h"
#include "daemon/base/clock.h"
#include "daemon/collect/collector.h"
#include "daemon/config/config.h"
#include "daemon/config/version.h"
#include "daemon/detect/process_health.h"
#include "daemon/detect/rules.h"
#include "daemon/hang_detection.h"
#include "daemon/install_agent/install_agent.h"
#include "daemon/log/log.h"
#include "daemon/pipeline.h"
#include "daemon/serve/server.h"
#include "daemon/store/dump_store.h"
#include "daemon/symbolize/symbolizer.h"

namespace stackd {
namespace {

constexpr int64_t kSelfDumpNs = 5 * kNsPerSecond;
constexpr int64_t kDrainNs = 3 * kNsPerSecond;
constexpr useconds_t kEndAnywayUs = 4'500'000;

int Fail(const std::string& sentence) {
  fprintf(stderr, "stackd: %s\n", sentence.c_str());
  return 1;
}

// One fd per process, ring and mapped file adds up.
void RaiseFdLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// SIGTERM and SIGINT are taken by sigwait; blocked before any thread is started, so that none of them gets one.
sigset_t BlockEndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// Open to all, because processes of other users connect to stackd.sock in it; api.sock and the store have modes of their
// own.
Result<void> MakeDir(const std::string& dir) {
  if (mkdir(dir.c_str(), 0755) != 0 && errno != EEXIST) {
    return Error(Code::kPermissionDenied,
                 "cannot make the folder " + dir + " (" + strerror(errno) + "): choose another with --dir");
  }
  return {};
}

Result<std::unique_ptr<DumpStore>> OpenStore(const Config& config) {
  // Stacks are for the owner's eyes; SQLite gives its side files the mode of the file.
  mode_t before = umask(0077);
  auto store = DumpStore::Open({.file = config.store,
                                .max_bytes = config.store_max_bytes,
                                .max_dumps = config.store_max_dumps,
                                .max_age_seconds = config.store_max_age_seconds,
                                .crashes_per_group = config.store_crashes_per_group});
  umask(before);
  return store;
}

Result<Rules> RulesOf(const Config& config) {
  if (config.rules.empty()) return BuiltInRules();
  auto rules = ReadRules(config.rules);
  if (rules) return std::move(*rules);
  const size_t others = rules.error().size() - 1;
  const std::string more = others == 0 ? "" : " (and " + std::to_string(others) + " more: stackd check-rules tells them)";
  return Error(Code::kInvalidArgument, rules.error()[0] + more);
}

// Whatever still runs by then holds nothing that is not on disk already.
void EndAnywayInTime() {
  std::thread([] {
    usleep(kEndAnywayUs);
    Log(LogLevel::kWarning, "stackd ends with work unfinished");
    _exit(0);
  }).detach();
}

int Run(const Config& config) {
  sigset_t end_signals = BlockEndSignals();
  auto rules = RulesOf(config);
  if (!rules) return Fail(rules.error().message);
  RaiseFdLimit();
  if (Result<void> made = MakeDir(config.dir); !made) return Fail(made.error().message);

  // First, because it makes sure that no other daemon serves the folder, the store in it included.
  auto collector =
      Collector::Start({.dir = config.dir, .ring_bytes = config.ring_bytes, .max_processes = config.max_processes});
  if (!collector) return Fail(collector.error().message);
  auto store = OpenStore(config);
  if (!store) return Fail(store.error().message);
  Symbolizer symbolizer({.debug_dirs = config.debug_dirs});
  std::unique_ptr<OnDump> on_dump;
  if (!config.on_dump.empty()) {
    auto started = OnDump::Start({.program = config.on_dump, .address = "unix:" + config.dir + "/api.sock"});
    if (!started) return Fail(started.error().message);
    on_dump = std::move(*started);
  }
  Pipeline pipeline(collector->get(), &symbolizer, store->get(), config.debug_dirs);
  (*collector)->OnDumpRequest([&pipeline](std::string process_id) {
    CaptureRequest request{.trigger = Trigger::kSelf, .deadline_ns = MonotonicNs() + kSelfDumpNs};
    auto dump = pipeline.CreateDump(process_id, request);
    if (!dump) Log(LogLevel::kWarning, "dump failed", {{"process", process_id}, {"err", dump.error().message}});
  });
  std::shared_ptr<void> on_dump_watch;
  if (on_dump != nullptr) {
    on_dump_watch = pipeline.Watch([&on_dump](std::shared_ptr<const v1::Dump> dump) {
      on_dump->Add(dump->name(), v1::Dump::Trigger_Name(dump->trigger()));
    });
  }
  ProcessHealth process_health([&collector] { return (*collector)->Processes(); });
  std::unique_ptr<HangDetection> hang_detection;
  if (config.hang_detection) {
    auto started = HangDetection::Start(collector->get(), &pipeline, &process_health, std::move(*rules),
                                        "unix:" + config.dir + "/api.sock");
    if (!started) return Fail(started.error().message);
    hang_detection = std::move(*started);
  }
  const auto hang_counters = [&hang_detection] {
    return hang_detection == nullptr ? std::map<std::string, int64_t>() : hang_detection->Counters();
  };
  auto server = Server::Start({.collector = collector->get(),
                               .pipeline = &pipeline,
                               .store = store->get(),
                               .symbolizer = &symbolizer,
                               .dir = config.dir,
                               .store_file = config.store,
                               .process_health = &process_health,
                               .more_counters = hang_counters},
                              {.address = config.listen,
                               .tls = {.cert = config.tls_cert, .key = config.tls_key, .client_ca = config.tls_client_ca},
                               .access_file = config.access});
  if (!server) return Fail(server.error().message);
  // What a former daemon left first: the spool may hold the same crashes.
  pipeline.FinishWhatWasLeft();
  (*collector)->OnCrash([&pipeline](std::shared_ptr<Capture> capture, const std::function<void()>& release) {
    pipeline.AddCrash(std::move(capture), release);
  });

  for (const std::string& problem : (*collector)->Problems()) Log(LogLevel::kWarning, problem);
  for (const std::string& problem : (*store)->Problems()) Log(LogLevel::kWarning, problem);
  std::string addresses;
  for (const std::string& address : (*server)->addresses()) addresses += (addresses.empty() ? "" : " ") + address;
  Log(LogLevel::kInfo, "stackd is ready",
      {{"version", kVersion}, {"addresses", addresses}, {"store", config.store}, {"pid", getpid()}});

  int signal_number = 0;
  sigwait(&end_signals, &signal_number);
  Log(LogLevel::kInfo, "stackd is stopping", {{"signal", strsignal(signal_number)}});
  EndAnywayInTime();
  (*server)->Drain(kDrainNs);
  server->reset();
  hang_detection.reset();
  // Before the pipeline, which dumps that processes asked for still use.
  collector->reset();
  Log(LogLevel::kInfo, "stackd has stopped");
  return 0;
}

}  // namespace
}  // namespace stackd

int main(int argc, char** argv) {
  int worker_exit_code = stackd::RunSymbolizeWorkerIfAsked(argc, argv);
  if (worker_exit_code >= 0) return worker_exit_code;
  if (auto exit_code = stackd::CheckRulesIfAsked(argc, argv)) return *exit_code;
  if (auto exit_code = stackd::InstallAgentIfAsked(argc, argv)) return *exit_code;
  if (auto exit_code = stackd::CheckAccessIfAsked(argc, argv)) return *exit_code;
  auto config = stackd::ParseConfig(argc, argv);
  if (!config) {
    fputs(config.error().text.c_str(), config.error().exit_code == 0 ? stdout : stderr);
    return config.error().exit_code;
  }
  stackd::StartLog(config->log_format, config->log_level);
  return stackd::Run(*config);
}

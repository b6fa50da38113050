// The daemon: builds the stages, serves until it is told to end.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "daemon/access/access_rules.h"
#include "daemon/app/hang_detection.h"
#include "daemon/app/install_agent.h"
#include "daemon/app/memory_limit.h"
#include "daemon/base/byte_budget.h"
#include "daemon/base/clock.h"
#include "daemon/base/lock_graph.h"
#include "daemon/collect/collector.h"
#include "daemon/config/config.h"
#include "daemon/config/version.h"
#include "daemon/confine/confine_daemon.h"
#include "daemon/detect/respond/process_health.h"
#include "daemon/detect/rules/rules.h"
#include "daemon/hooks/on_dump.h"
#include "daemon/http/http_server.h"
#include "daemon/http/pages.h"
#include "daemon/log/log.h"
#include "daemon/metrics/page.h"
#include "daemon/otlp/exporter.h"
#include "daemon/pipeline/pipeline.h"
#include "daemon/process/flock_process.h"
#include "daemon/resource/locator.h"
#include "daemon/serve/health/probes.h"
#include "daemon/serve/net/open_address.h"
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

bool RunsPrograms(const Config& config, const Rules& rules) {
  return !config.on_dump.empty() || std::ranges::any_of(rules, [](const auto& rule) { return !rule->run.empty(); });
}

DaemonNeeds NeedsOf(const Config& config, const Rules& rules) {
  DaemonNeeds needs{
      .runs_programs = RunsPrograms(config, rules), .connects = !config.otlp_endpoint.empty(), .written = {config.dir}};
  // SQLite writes files beside it.
  const auto store_dir = std::filesystem::path(config.store).parent_path();
  if (config.store != ":memory:") needs.written.push_back(store_dir.empty() ? "." : store_dir.string());
  return needs;
}

// Where nothing was started, the daemon may look itself.
AskFlock AskOf(std::shared_ptr<const FlockProcess> process) {
  if (process == nullptr) return {};
  return [process = std::move(process)](const FileLockLine& taken, int64_t deadline_ns) {
    return process->HasFlock(taken, deadline_ns);
  };
}

// Where the daemon runs; its name is in no line, as all are its.
LogPlace LoggedPlace(const Locator& locator) {
  LogPlace place = locator.LocateDaemon().values();
  place.erase(kServiceName);
  return place;
}

Counters CountersOf(const OnDump& on_dump) {
  return {{"runs", on_dump.runs()}, {"failures", on_dump.failures()}, {"dropped", on_dump.dropped()}};
}

void AddPrefixed(const std::string& prefix, const Counters& from, Counters* to) {
  for (const auto& [name, count] : from) (*to)[prefix + name] = count;
}

// The exporter, and what feeds it; it is told of each dump that is stored.
struct Otlp {
  // The watch holds it too: it may be in the middle of a dump when it ends.
  std::shared_ptr<OtlpExporter> exporter;
  std::shared_ptr<void> watch;
};

Result<Otlp> StartOtlp(const Config& config, Pipeline* pipeline) {
  Otlp otlp;
  if (config.otlp_endpoint.empty()) return otlp;
  const char* headers = getenv("OTEL_EXPORTER_OTLP_HEADERS");
  auto started = OtlpExporter::Start({.endpoint = config.otlp_endpoint,
                                      .ca_file = config.otlp_ca,
                                      .headers = headers == nullptr ? "" : headers,
                                      .dumps_per_fingerprint = config.otlp_dumps});
  if (!started) return std::unexpected(started.error());
  otlp.exporter = std::move(*started);
  otlp.watch =
      pipeline->Watch([exporter = otlp.exporter](const std::shared_ptr<const v1::Dump>& dump) { exporter->Add(dump); });
  return otlp;
}

struct HttpService {
  std::string address;  // "": not served
  std::unique_ptr<HttpServer> server;
};

Result<HttpService> StartHttp(const std::string& flag, const std::string& listen, HttpPages pages, HttpCounters* counters) {
  if (listen.empty()) return HttpService{};
  auto listens = ListenForAnybody(flag, listen);
  if (!listens) return std::unexpected(listens.error());
  auto server = HttpServer::Start(std::move(listens->fd), {.handler = ServePages(std::move(pages)), .counters = counters});
  if (!server) return std::unexpected(server.error());
  return HttpService{listens->address, std::move(*server)};
}

// On a thread of its own: it must not wait for the store, as the page of metrics does.
Result<HttpService> StartHealth(const Config& config, Probes* probes, HttpCounters* counters) {
  HttpPages pages;
  probes->AddTo(&pages);
  return StartHttp("--health-listen", config.health_listen, std::move(pages), counters);
}

Result<HttpService> StartMetrics(const Config& config, const MeasuredParts& parts, Probes* probes, HttpCounters* counters) {
  HttpPages pages;
  probes->AddTo(&pages);
  pages["/metrics"] = {kMetricsContentType,
                       [parts](const std::string&) { return HttpAnswer{.body = RenderMetrics(parts)}; }};
  return StartHttp("--metrics-listen", config.metrics_listen, std::move(pages), counters);
}

// Whatever still runs some time after `is_ending` holds nothing that is not on disk already. At the start, because at the
// end there may be no room for a thread.
void EndAnywayInTime(std::binary_semaphore* is_ending) {
  std::thread([is_ending] {
    is_ending->acquire();
    usleep(kEndAnywayUs);
    Log(LogLevel::kWarning, "stackd ends with work unfinished");
    _exit(0);
  }).detach();
}

// What found no room in the memory that programs may make the daemon use.
Counters RefusalsOf(const MemoryBudgets& budgets) {
  return {
      {"images", budgets.images.refusals()}, {"stacks", budgets.stacks.refusals()}, {"dumps", budgets.dumps.refusals()}};
}

// Without these settings what one large dump has needed stays in a heap of the thread that made it. Three of them had 100
// MiB after the last was gone.
void GiveMemoryBackSoon() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

int Run(const Config& config, const Locator& locator) {
  GiveMemoryBackSoon();
  sigset_t end_signals = BlockEndSignals();
  static std::binary_semaphore is_ending(0);
  auto rules = RulesOf(config);
  if (!rules) return Fail(rules.error().message);
  if (Result<void> made = MakeDir(config.dir); !made) return Fail(made.error().message);
  std::shared_ptr<const FlockProcess> flock_process;
  const Confinement confinement = ConfineDaemon(NeedsOf(config, *rules), [&] { flock_process = FlockProcess::Start(); });
  EndAnywayInTime(&is_ending);
  RaiseFdLimit();
  const int64_t memory_limit_bytes = MemoryLimitBytes();
  MemoryBudgets budgets(memory_limit_bytes);

  // First, because it makes sure that no other daemon serves the folder, the store in it included.
  auto collector = Collector::Start(
      {.dir = config.dir,
       .ring_bytes = config.ring_bytes,
       .max_processes = config.max_processes,
       .locate = [&locator](std::string_view hostname,
                            std::string_view variables) { return locator.Locate(hostname, variables).values(); },
       .budgets = &budgets,
       .has_flock = AskOf(std::move(flock_process))});
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
  Pipeline pipeline(collector->get(), &symbolizer, store->get(), config.debug_dirs, &budgets.dumps);
  (*collector)->OnDumpRequest([&pipeline](const OwnDumpRequest& own) {
    CaptureRequest request{.trigger = own.exception ? Trigger::kCrash : Trigger::kSelf,
                           .deadline_ns = MonotonicNs() + kSelfDumpNs,
                           .exception = own.exception};
    auto dump = pipeline.CreateDump(own.process_id, request);
    if (!dump) Log(LogLevel::kWarning, "dump failed", {{"process", own.process_id}, {"err", dump.error().message}});
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
  auto otlp = StartOtlp(config, &pipeline);
  if (!otlp) return Fail(otlp.error().message);
  const auto hang_counters = [&hang_detection] {
    return hang_detection == nullptr ? Counters() : hang_detection->Counters();
  };
  const auto on_dump_counters = [&on_dump] { return on_dump == nullptr ? Counters() : CountersOf(*on_dump); };
  const auto otlp_counters = [&otlp] { return otlp->exporter == nullptr ? Counters() : otlp->exporter->Counters(); };
  RpcMetrics calls({"stackd.v1.Stackd", "grpc.health.v1.Health"});
  const Attributes place = locator.LocateDaemon();
  Probes probes(&process_health);
  // Before the API: a caller that finds that finds all.
  HttpCounters health_counters, metrics_counters, web_counters;
  auto health = StartHealth(config, &probes, &health_counters);
  if (!health) return Fail(health.error().message);
  auto metrics =
      StartMetrics(config,
                   {.collector = collector->get(),
                    .pipeline = &pipeline,
                    .store = store->get(),
                    .symbolizer = &symbolizer,
                    .calls = &calls,
                    .place = place,
                    .confinement = confinement,
                    .hangs = hang_counters,
                    .on_dump = on_dump_counters,
                    .otlp = otlp_counters,
                    .memory = [&budgets] { return RefusalsOf(budgets); },
                    .http = {{"health", &health_counters}, {"metrics", &metrics_counters}, {"web", &web_counters}}},
                   &probes, &metrics_counters);
  if (!metrics) return Fail(metrics.error().message);
  auto server =
      Server::Start({.collector = collector->get(),
                     .pipeline = &pipeline,
                     .store = store->get(),
                     .symbolizer = &symbolizer,
                     .dir = config.dir,
                     .store_file = config.store,
                     .process_health = &process_health,
                     .moving_threads =
                         [&hang_detection](const std::string& process_id) {
                           return hang_detection == nullptr ? std::nullopt : hang_detection->MovingThreads(process_id);
                         },
                     .more_counters =
                         [&] {
                           Counters counters = hang_counters();
                           AddPrefixed("on_dump_", on_dump_counters(), &counters);
                           AddPrefixed("memory_refused_", RefusalsOf(budgets), &counters);
                           AddPrefixed("otlp_", otlp_counters(), &counters);
                           return counters;
                         },
                     .resource_attributes = place.values(),
                     .calls = &calls,
                     .web = &web_counters},
                    {.address = config.listen,
                     .tls = {.cert = config.tls_cert, .key = config.tls_key, .client_ca = config.tls_client_ca},
                     .access_file = config.access,
                     .web_address = config.web_listen,
                     .web_hosts = config.web_hosts});
  if (!server) return Fail(server.error().message);
  // What a former daemon left first: the spool may hold the same crashes.
  pipeline.ResumeUnfinished();
  (*collector)->OnCrash([&pipeline](std::shared_ptr<Capture> capture, const std::function<void()>& release) {
    pipeline.AddCrash(std::move(capture), release);
  });

  for (const std::string& problem : (*collector)->Problems()) Log(LogLevel::kWarning, problem);
  for (const std::string& problem : (*store)->Problems()) Log(LogLevel::kWarning, problem);
  std::string addresses;
  for (const std::string& address : (*server)->addresses()) addresses += (addresses.empty() ? "" : " ") + address;
  Log(LogLevel::kInfo, "stackd is ready",
      {{"version", kVersion},
       {"addresses", addresses},
       LogField::IfKnown("web", (*server)->web_url()),
       LogField::IfKnown("health", health->address),
       LogField::IfKnown("metrics", metrics->address),
       {"store", config.store},
       {"memory_limit_mib", memory_limit_bytes >> 20},
       {"pid", getpid()}});

  int signal_number = 0;
  sigwait(&end_signals, &signal_number);
  Log(LogLevel::kInfo, "stackd is stopping", {{"signal", strsignal(signal_number)}});
  is_ending.release();
  (*collector)->EndAttempts();
  (*store)->EndAttempts();
  probes.Drain();
  (*server)->Drain(kDrainNs);
  server->reset();
  // What these tell they ask of the rest.
  health->server.reset();
  metrics->server.reset();
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
  stackd::TurnOffLockGraph();
  const stackd::Locator locator(stackd::Locator::OfThisProcess(config->pod_info));
  stackd::StartLog(config->log_format, config->log_level, stackd::LoggedPlace(locator));
  return stackd::Run(*config, locator);
}

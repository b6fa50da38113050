#include "daemon/metrics/page.h"

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/loop_watch.h"
#include "daemon/config/version.h"
#include "daemon/metrics/own_process.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

int64_t Of(const Counters& counters, std::string_view name) {
  const auto found = counters.find(std::string(name));
  return found == counters.end() ? 0 : found->second;
}

// A counter, by one label: its values and the names of what they count.
using ByLabel = std::initializer_list<std::pair<std::string_view, std::string_view>>;

void CounterBy(std::string_view label, std::string_view name, std::string_view help, const Counters& counters,
               ByLabel values, Exposition* out) {
  out->Family("counter", name, help);
  for (const auto& [value, counter] : values) out->Sample({{label, value}}, Of(counters, counter));
}

void WriteInfo(const MeasuredParts& parts, Exposition* out) {
  out->Family("gauge", "stackd_build_info", "Version of stackd, and of the interface between agent and daemon.");
  out->Sample({{"version", kVersion}, {"agent_abi", std::to_string(STACKD_ABI_VERSION)}}, int64_t{1});
  out->Family("gauge", "target_info", "Where stackd runs, as OpenTelemetry's resource attributes.");
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [attribute, value] : parts.place.values()) {
    std::string key = attribute;
    for (char& c : key) c = c == '.' || c == '-' || c == '/' ? '_' : c;
    texts.emplace_back(std::move(key), value);
  }
  const std::vector<Exposition::Label> labels(texts.begin(), texts.end());
  out->Sample(labels, int64_t{1});
}

void WriteCaptures(const PipelineMeasures& measures, const Counters& counters, Exposition* out) {
  constexpr std::array<const char*, 5> kTriggers = {"", "request", "hang", "crash", "self"};
  constexpr std::array<const char*, PipelineMeasures::kOutcomes> kOutcomes = {"complete", "partial", "failed"};
  out->Family("counter", "stackd_captures_total", "Dumps that were made, or could not be, by what asked for them.");
  for (size_t trigger = 1; trigger < kTriggers.size(); ++trigger) {
    for (size_t outcome = 0; outcome < kOutcomes.size(); ++outcome) {
      out->Sample({{"trigger", kTriggers[trigger]}, {"outcome", kOutcomes[outcome]}},
                  measures.captures[trigger][outcome].load());
    }
  }
  out->Family("histogram", "stackd_capture_duration_seconds", "From the request to the last thread captured.");
  out->Sample({}, measures.capture);
  out->Family("histogram", "stackd_unwind_duration_seconds", "How long it took to unwind all stacks of a dump.");
  out->Sample({}, measures.unwind);
  out->Family("histogram", "stackd_symbolize_duration_seconds", "How long it took to name all frames of a dump.");
  out->Sample({}, measures.symbolize);

  constexpr std::array<const char*, 8> kEnds = {"none",           "root",        "truncated",          "unreadable",
                                                "no_unwind_info", "no_progress", "bad_return_address", "limit"};
  out->Family("counter", "stackd_unwind_stacks_total", "Stacks that were unwound, by why they end where they do.");
  for (size_t end = 1; end < kEnds.size(); ++end) out->Sample({{"end", kEnds[end]}}, measures.stacks_by_end[end].load());
  out->Counter("stackd_frames_total", "Frames of distinct stacks in dumps.", Of(counters, "frames"));
  out->Counter("stackd_frames_unnamed_total", "Of those: frames without a function.", Of(counters, "frames_unnamed"));
  out->Counter("stackd_captures_shared_total", "Requests that got the dump of another that ran already.",
               Of(counters, "dumps_shared"));
  out->Counter("stackd_dumps_unstored_total", "Dumps that the store did not take.", Of(counters, "dumps_unstored"));
  out->Counter("stackd_dumps_resymbolized_total", "Stored dumps that were named anew.", Of(counters, "dumps_named_anew"));
  CounterBy("outcome", "stackd_samples_total", "Dumps that were answered and kept nowhere.", counters,
            {{"taken", "samples"}, {"failed", "samples_failed"}}, out);
  out->Gauge("stackd_captures_running", "Dumps that are being made.", Of(counters, "dumps_running"));
}

void WriteAgents(const Collector& collector, const Counters& counters, const Counters& hangs, Exposition* out) {
  const RingUsage rings = collector.Rings();
  out->Gauge("stackd_agents", "Processes that are connected.", rings.agents);
  CounterBy("outcome", "stackd_agent_connections_total", "Processes that have connected.", counters,
            {{"accepted", "agents_accepted"}, {"rejected", "agents_rejected"}, {"displaced", "agents_displaced"}}, out);
  out->Gauge("stackd_agent_last_heartbeat_timestamp_seconds",
             "When a heartbeat of any process was last seen to beat, in seconds since 1970; 0: never.",
             Of(hangs, "heartbeat_last_s"));
  out->Counter("stackd_agent_dump_requests_refused_total", "Dumps that processes asked for too often.",
               Of(counters, "dump_requests_refused"));
  out->Gauge("stackd_ring_capacity_bytes", "Shared memory for the records of all processes.", rings.capacity_bytes);
  out->Gauge("stackd_ring_used_bytes", "Of that: in use.", rings.used_bytes);
  out->Counter("stackd_ring_records_total", "Records that were read from rings.", Of(counters, "ring_records"));
  CounterBy("reason", "stackd_ring_dropped_total", "Records that agents could not write, or that came too late.", counters,
            {{"no_slot", "ring_dropped_no_slot"},
             {"late", "ring_dropped_late"},
             {"agent_fault", "ring_dropped_agent_fault"},
             {"crash", "ring_dropped_crash"},
             {"corrupt", "ring_corrupt_records"}},
            out);
}

void WriteMemory(const Counters& refused, Exposition* out) {
  CounterBy("what", "stackd_memory_refused_total",
            "Times that there was no memory: images that were not copied, stacks that were dropped, dumps that were cut.",
            refused, {{"images", "images"}, {"stacks", "stacks"}, {"dumps", "dumps"}}, out);
}

void WriteHttp(const std::map<std::string, const HttpCounters*>& servers, Exposition* out) {
  out->Family("counter", "stackd_http_requests_total", "Requests over HTTP, by the port that they came to.");
  for (const auto& [server, counters] : servers) out->Sample({{"server", server}}, counters->requests.load());
  out->Family("counter", "stackd_http_connections_dropped_total",
              "Connections without an answer: closed to make room for others, or of a host with too many.");
  for (const auto& [server, counters] : servers) {
    out->Sample({{"server", server}, {"reason", "displaced"}}, counters->displaced.load());
    out->Sample({{"server", server}, {"reason", "host_limit"}}, counters->refused.load());
  }
}

void WriteCrashes(const Counters& counters, Exposition* out) {
  out->Counter("stackd_crashes_total", "Crashes that were taken from processes, or from files that they left.",
               Of(counters, "crashes_taken") + Of(counters, "spool_taken"));
  out->Counter("stackd_crashes_hurried_total", "Of those: without the other threads, as too many came at once.",
               Of(counters, "crashes_hurried"));
  out->Counter("stackd_crashes_known_total", "Of those: stored already.", Of(counters, "crashes_known"));
  out->Gauge("stackd_crashes_waiting", "Crashes that are stored and wait for their names.",
             Of(counters, "crashes_waiting"));
  CounterBy("outcome", "stackd_spool_files_total", "Crashes that processes left in files, as no daemon took them.",
            counters, {{"taken", "spool_taken"}, {"refused", "spool_refused"}, {"set_aside", "spool_set_aside"}}, out);
  out->Gauge("stackd_captures_set_aside", "Stored captures that ended stackd more than once and are not tried again.",
             Of(counters, "captures_set_aside"));
}

void WriteHangs(const Counters& hangs, Exposition* out) {
  CounterBy("cause", "stackd_hangs_total", "Hangs that were suspected.", hangs,
            {{"heartbeat", "hangs_heartbeat"},
             {"deadlock", "hangs_deadlock"},
             {"spin", "hangs_spin"},
             {"no_progress", "hangs_no_progress"},
             {"not_gone", "hangs_not_gone"}},
            out);
  CounterBy("outcome", "stackd_hang_dumps_total", "What came of those.", hangs,
            {{"made", "hang_dumps"},
             {"failed", "hang_dumps_failed"},
             {"lost", "hang_dumps_lost"},
             {"over", "hangs_over_before_dump"},
             {"cooldown", "hangs_in_cooldown"}},
            out);
  out->Counter("stackd_hangs_unconfirmed_total", "Hangs whose dump did not show what was suspected.",
               Of(hangs, "hangs_unconfirmed"));
  out->Gauge("stackd_hang_dumps_waiting", "Hangs that wait to be dumped.", Of(hangs, "hang_dumps_waiting"));
  out->Counter("stackd_hang_looks_total", "Looks at a process.", Of(hangs, "hang_looks"));
  out->Counter("stackd_hang_samples_total", "Looks at what its threads wait for.", Of(hangs, "hang_samples"));
  out->Counter("stackd_hang_samples_failed_total", "Of those: without an answer.", Of(hangs, "hang_samples_failed"));
  out->Family("counter", "stackd_hang_look_cpu_seconds_total", "CPU time that the looks have cost stackd.");
  out->Sample({}, static_cast<double>(Of(hangs, "hang_looks_cpu_us")) / 1e6);
}

void WriteStore(const DumpStore& store, Exposition* out) {
  out->Gauge("stackd_store_dumps", "Stored dumps.", store.dump_count());
  out->Gauge("stackd_store_used_bytes", "Size of the stored dumps.", store.bytes());
  out->Gauge("stackd_store_capacity_bytes", "How large they may become (--store-max-bytes).", store.max_bytes());
  out->Gauge("stackd_store_problems", "What is wrong with the store: GetDaemon tells it in words.",
             static_cast<int64_t>(store.Problems().size()));
  const Evictions evictions = store.evictions();
  out->Family("counter", "stackd_store_evictions_total", "Dumps that went before anybody deleted them, by the limit.");
  out->Sample({{"reason", "age"}}, evictions.age);
  out->Sample({{"reason", "count"}}, evictions.count);
  out->Sample({{"reason", "bytes"}}, evictions.bytes);
  out->Sample({{"reason", "group_full"}}, store.dropped_count());
}

void WriteSymbols(const Symbolizer& symbolizer, Exposition* out) {
  out->Family("counter", "stackd_symbol_cache_requests_total", "Addresses to name, by whether their names were known.");
  out->Sample({{"result", "hit"}}, symbolizer.cache_hits());
  out->Sample({{"result", "miss"}}, symbolizer.cache_misses());
  out->Counter("stackd_symbol_worker_restarts_total", "Times that the symbol worker died of what it read.",
               symbolizer.worker_restarts());
}

void WriteConfinement(const Confinement& confinement, Exposition* out) {
  out->Family("gauge", "stackd_confined",
              "1: this part of stackd has given up rights so; 0: it has not, and the log says why.");
  const auto sample = [out](const char* part, const char* by, bool confined) {
    out->Sample({{"part", part}, {"by", by}}, int64_t{confined});
  };
  sample("daemon", "dumpable", confinement.memory_closed);
  sample("daemon", "seccomp", confinement.calls_refused);
  sample("daemon", "landlock", confinement.paths_closed);
  sample("symbol_worker", "seccomp", confinement.worker.has_seccomp);
  sample("symbol_worker", "landlock", confinement.worker.landlock_version > 0);
}

void WriteLoops(Exposition* out) {
  out->Family("gauge", "stackd_loop_age_seconds",
              "How long each loop of stackd has been at one piece of work; 0: it waits for work.");
  for (size_t i = 0; i < kLoops; ++i) {
    const Loop loop = static_cast<Loop>(i);
    out->Sample({{"loop", NameOf(loop)}}, static_cast<double>(DaemonLoops().AgeNs(loop)) / kNsPerSecond);
  }
}

void WriteOtlp(const Counters& counters, Exposition* out) {
  CounterBy(
      "outcome", "stackd_otlp_records_total", "Crashes and hangs that were to be sent by OTLP.", counters,
      {{"sent", "sent"}, {"dropped_queue_full", "queue_full"}, {"dropped_refused", "refused"}, {"dropped_late", "late"}},
      out);
  CounterBy("outcome", "stackd_otlp_dumps_total", "Dumps that were to be sent whole by OTLP.", counters,
            {{"sent", "dumps_sent"},
             {"dropped_queue_full", "dumps_queue_full"},
             {"dropped_refused", "dumps_refused"},
             {"dropped_late", "dumps_late"},
             {"dropped_too_large", "dumps_too_large"}},
            out);
}

}  // namespace

std::string RenderMetrics(const MeasuredParts& parts) {
  const Counters collected = parts.collector->Counters(), made = parts.pipeline->Counters(),
                 hangs = parts.hangs ? parts.hangs() : Counters();
  Counters all = collected;
  all.insert(made.begin(), made.end());
  Exposition out;
  WriteInfo(parts, &out);
  WriteCaptures(parts.pipeline->Measures(), all, &out);
  WriteAgents(*parts.collector, all, hangs, &out);
  WriteCrashes(all, &out);
  WriteHangs(hangs, &out);
  WriteStore(*parts.store, &out);
  WriteSymbols(*parts.symbolizer, &out);
  WriteConfinement(parts.confinement, &out);
  WriteLoops(&out);
  WriteMemory(parts.memory ? parts.memory() : Counters(), &out);
  CounterBy("outcome", "stackd_on_dump_runs_total", "Runs of the program of --on-dump.",
            parts.on_dump ? parts.on_dump() : Counters(), {{"run", "runs"}, {"failed", "failures"}, {"dropped", "dropped"}},
            &out);
  WriteOtlp(parts.otlp ? parts.otlp() : Counters(), &out);
  WriteHttp(parts.http, &out);
  parts.calls->Write(&out);
  WriteOwnProcess(&out);
  return out.Take();
}

}  // namespace stackd

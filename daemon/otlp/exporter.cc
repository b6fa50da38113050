#include "daemon/otlp/exporter.h"

#include <fcntl.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/config/version.h"
#include "daemon/log/log.h"
#include "daemon/otlp/endpoint.h"
#include "daemon/otlp/log_record.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "opentelemetry/proto/collector/logs/v1/logs_service.grpc.pb.h"

namespace stackd {
namespace {

namespace collector = opentelemetry::proto::collector::logs::v1;

// A record has some 20 KiB at most, and a collector takes 4 MiB.
constexpr size_t kMaxBatch = 64;
constexpr int64_t kLastWordsNs = kNsPerSecond;
constexpr size_t kMaxCaBytes = 4u << 20;
constexpr char kSystemAuthorities[] = "/etc/ssl/certs/ca-certificates.crt";

Result<std::string> ReadAuthorities(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char bytes[4096];
  for (ssize_t got; file.valid() && text.size() < kMaxCaBytes && (got = read(file.get(), bytes, sizeof(bytes))) > 0;) {
    text.append(bytes, static_cast<size_t>(got));
  }
  if (text.find("-----BEGIN CERTIFICATE-----") != std::string::npos) return text;
  return Error(Code::kInvalidArgument,
               "the certificates of the collector's authorities cannot be read from " + path + ": see --otlp-ca");
}

// What OTLP calls retryable. RESOURCE_EXHAUSTED is so only where the collector says when to come again.
bool MayComeAgain(grpc::StatusCode code, bool says_when) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return says_when;
    default:
      return false;
  }
}

// How long the collector wants to be left alone; nullopt: it does not say.
std::optional<int64_t> RetryDelayNs(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& detail : details.details()) {
    google::rpc::RetryInfo retry;
    if (!detail.Is<google::rpc::RetryInfo>() || !detail.UnpackTo(&retry)) continue;
    const int64_t seconds = std::clamp<int64_t>(retry.retry_delay().seconds(), 0, 3600);
    return seconds * kNsPerSecond + std::clamp<int64_t>(retry.retry_delay().nanos(), 0, kNsPerSecond - 1);
  }
  return std::nullopt;
}

}  // namespace

struct OtlpExporter::Link {
  std::string target;
  Headers headers;
  std::unique_ptr<collector::LogsService::Stub> stub;
  // The call that runs; guarded by the exporter's mutex.
  grpc::ClientContext* running = nullptr;
};

struct OtlpExporter::Waiting {
  opentelemetry::proto::logs::v1::ResourceLogs logs;
  int64_t added_ns;
  // Only of a whole dump, which is rendered when its turn comes.
  std::shared_ptr<const v1::Dump> dump = nullptr;
  size_t dump_bytes = 0;
};

struct OtlpExporter::Queue {
  size_t Count() const { return waiting.size() + being_sent; }

  std::deque<Waiting> waiting;
  size_t being_sent = 0;
  int64_t sent = 0, full = 0, refused = 0, late = 0, too_large = 0;
};

OtlpExporter::OtlpExporter(OtlpOptions options, std::unique_ptr<Link> link)
    : options_(std::move(options)),
      link_(std::move(link)),
      records_(std::make_unique<Queue>()),
      dumps_(std::make_unique<Queue>()),
      quota_(options_.dumps_per_fingerprint),
      thread_([this] { Run(); }) {}

Result<std::unique_ptr<OtlpExporter>> OtlpExporter::Start(OtlpOptions options) {
  auto endpoint = ParseEndpoint(options.endpoint);
  if (!endpoint) return std::unexpected(endpoint.error());
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (endpoint->has_tls) {
    auto authorities = ReadAuthorities(options.ca_file.empty() ? kSystemAuthorities : options.ca_file);
    if (!authorities) return std::unexpected(authorities.error());
    credentials = grpc::SslCredentials({.pem_root_certs = std::move(*authorities)});
  } else if (!options.ca_file.empty()) {
    return Error(Code::kInvalidArgument, "--otlp-ca is for an --otlp-endpoint that begins with https://");
  }
  grpc::ChannelArguments arguments;
  arguments.SetUserAgentPrefix(std::string("stackd/") + kVersion);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(options.longest_pause_ns / kNsPerMs));
  auto link = std::make_unique<Link>();
  link->target = endpoint->target;
  auto headers = ParseHeaders(options.headers);
  if (!headers) return std::unexpected(headers.error());
  link->headers = std::move(*headers);
  link->stub = collector::LogsService::NewStub(grpc::CreateCustomChannel(endpoint->target, credentials, arguments));
  return std::unique_ptr<OtlpExporter>(new OtlpExporter(std::move(options), std::move(link)));
}

OtlpExporter::~OtlpExporter() {
  {
    std::unique_lock lock(mutex_);
    end_ns_ = MonotonicNs() + kLastWordsNs;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::nanoseconds(kLastWordsNs), [this] { return has_ended_; });
    if (link_->running != nullptr) link_->running->TryCancel();
  }
  thread_.join();
}

void OtlpExporter::Add(const std::shared_ptr<const v1::Dump>& dump) {
  if (!IsEvent(*dump)) return;
  Waiting record{ToResourceLogs(*dump, WallNs()), MonotonicNs()};
  const size_t dump_bytes = dump->ByteSizeLong();
  std::lock_guard lock(mutex_);
  if (records_->Count() >= options_.queue_limit) {
    ++records_->full;
    return;
  }
  records_->waiting.push_back(std::move(record));
  AddDump(dump, dump_bytes);
  changed_.notify_all();
}

void OtlpExporter::AddDump(const std::shared_ptr<const v1::Dump>& dump, size_t dump_bytes) {
  const std::string& fingerprint = EventFingerprint(*dump);
  if (!quota_.Take(fingerprint)) return;
  if (dumps_->Count() > 0 && waiting_dump_bytes_ + dump_bytes > options_.max_waiting_dump_bytes) {
    ++dumps_->full;
    quota_.GiveBack(fingerprint);
    return;
  }
  waiting_dump_bytes_ += dump_bytes;
  dumps_->waiting.push_back({.logs = {}, .added_ns = MonotonicNs(), .dump = dump, .dump_bytes = dump_bytes});
}

void OtlpExporter::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto has_work = [this] { return !records_->waiting.empty() || !dumps_->waiting.empty(); };
    changed_.wait(lock, [&] { return has_work() || end_ns_ != INT64_MAX; });
    if (!has_work()) break;
    // A dump goes alone: what a collector refuses or is too large for takes no record with it.
    Queue* const queue = records_->waiting.empty() ? dumps_.get() : records_.get();
    const size_t count = queue == dumps_.get() ? 1 : std::min(queue->waiting.size(), kMaxBatch);
    const auto end = queue->waiting.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<Waiting> batch(std::move_iterator(queue->waiting.begin()), std::move_iterator(end));
    queue->waiting.erase(queue->waiting.begin(), end);
    queue->being_sent = count;
    lock.unlock();
    if (queue == records_.get() || Render(&batch.front())) Send(std::move(batch), queue);
    lock.lock();
    queue->being_sent = 0;
  }
  has_ended_ = true;
  changed_.notify_all();
}

bool OtlpExporter::Render(Waiting* dump) {
  if (dump->logs.scope_logs_size() > 0) return true;  // it has been tried before
  auto logs = ToDumpLogs(*dump->dump, WallNs());
  if (logs) {
    dump->logs = std::move(*logs);
    return true;
  }
  Log(LogLevel::kWarning, "a dump is too large to be sent to the OpenTelemetry collector; it is stored",
      {{"dump", dump->dump->name()}, {"err", logs.error().message}});
  std::lock_guard lock(mutex_);
  ++dumps_->too_large;
  LetGo({dump, 1}, /*is_sent=*/false);
  return false;
}

void OtlpExporter::Send(std::vector<Waiting> batch, Queue* queue) {
  int64_t pause_ns = options_.first_pause_ns;
  while (true) {
    int64_t asked_pause_ns = pause_ns;
    const std::optional<Outcome> outcome = Try(batch, &asked_pause_ns);
    std::unique_lock lock(mutex_);
    if (outcome) {
      queue->sent += outcome->sent;
      queue->refused += outcome->refused;
      LetGo(batch, outcome->refused == 0);
      return;
    }
    const int64_t again_ns = MonotonicNs() + asked_pause_ns;
    const auto is_over = [&] { return again_ns >= end_ns_; };
    const auto is_in_time = [&](const Waiting& waiting) { return again_ns <= waiting.added_ns + options_.give_up_ns; };
    const auto give_up = [&](std::vector<Waiting>::iterator from) {
      const std::span<const Waiting> late(from, batch.end());
      queue->late += std::ssize(late);
      queue->being_sent -= late.size();
      LetGo(late, /*is_sent=*/false);
      batch.erase(from, batch.end());
    };
    give_up(std::stable_partition(batch.begin(), batch.end(), is_in_time));
    if (batch.empty()) return;
    if (is_over() || changed_.wait_for(lock, std::chrono::nanoseconds(asked_pause_ns), is_over)) {
      give_up(batch.begin());
      return;
    }
    if (queue == dumps_.get() && !records_->waiting.empty()) {
      queue->being_sent = 0;
      queue->waiting.push_front(std::move(batch.front()));
      return;
    }
    pause_ns = std::min(2 * pause_ns, options_.longest_pause_ns);
  }
}

void OtlpExporter::LetGo(std::span<const Waiting> ended, bool is_sent) {
  for (const Waiting& waiting : ended) {
    if (waiting.dump == nullptr) continue;
    waiting_dump_bytes_ -= waiting.dump_bytes;
    if (!is_sent) quota_.GiveBack(EventFingerprint(*waiting.dump));
  }
}

std::optional<OtlpExporter::Outcome> OtlpExporter::Try(const std::vector<Waiting>& batch, int64_t* pause_ns) {
  collector::ExportLogsServiceRequest request;
  for (const Waiting& waiting : batch) *request.add_resource_logs() = waiting.logs;
  collector::ExportLogsServiceResponse response;
  grpc::ClientContext context;
  for (const auto& [key, value] : link_->headers) context.AddMetadata(key, value);
  {
    std::lock_guard lock(mutex_);
    const int64_t left_ns = std::min(options_.timeout_ns, end_ns_ - MonotonicNs());
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(left_ns));
    link_->running = &context;
  }
  const grpc::Status status = link_->stub->Export(&context, request, &response);
  {
    std::lock_guard lock(mutex_);
    link_->running = nullptr;
  }
  TellOfChange(status.ok(), status.error_message());
  const int64_t count = std::ssize(batch);
  if (status.ok()) {
    const int64_t refused = std::clamp<int64_t>(response.partial_success().rejected_log_records(), 0, count);
    if (refused > 0) {
      Log(LogLevel::kWarning, "the OpenTelemetry collector has refused records",
          {{"count", refused}, {"err", response.partial_success().error_message()}});
    }
    return Outcome{count - refused, refused};
  }
  const std::optional<int64_t> delay_ns = RetryDelayNs(status);
  if (!MayComeAgain(status.error_code(), delay_ns.has_value())) return Outcome{0, count};
  *pause_ns = std::max(*pause_ns, delay_ns.value_or(0));
  return std::nullopt;
}

void OtlpExporter::TellOfChange(bool works, const std::string& why) {
  if (works == works_) return;
  works_ = works;
  if (works) {
    Log(LogLevel::kInfo, "the OpenTelemetry collector takes crashes and hangs again", {{"endpoint", options_.endpoint}});
  } else {
    Log(LogLevel::kWarning, "crashes and hangs cannot be sent to the OpenTelemetry collector; they are stored",
        {{"endpoint", options_.endpoint}, {"err", why}});
  }
}

std::map<std::string, int64_t> OtlpExporter::Counters() const {
  std::lock_guard lock(mutex_);
  std::map<std::string, int64_t> counters;
  for (const auto& [prefix, queue] : {std::pair{"", records_.get()}, {"dumps_", dumps_.get()}}) {
    const std::string kind = prefix;
    counters[kind + "sent"] = queue->sent;
    counters[kind + "queue_full"] = queue->full;
    counters[kind + "refused"] = queue->refused;
    counters[kind + "late"] = queue->late;
    counters[kind + "waiting"] = static_cast<int64_t>(queue->Count());
  }
  counters["dumps_too_large"] = dumps_->too_large;
  return counters;
}

}  // namespace stackd

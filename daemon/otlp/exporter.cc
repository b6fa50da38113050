#include "daemon/otlp/exporter.h"

#include <fcntl.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
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
};

OtlpExporter::OtlpExporter(OtlpOptions options, std::unique_ptr<Link> link)
    : options_(std::move(options)), link_(std::move(link)), thread_([this] { Run(); }) {}

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

void OtlpExporter::Add(const v1::Dump& dump) {
  if (!IsEvent(dump)) return;
  Waiting waiting{ToResourceLogs(dump, WallNs()), MonotonicNs()};
  std::lock_guard lock(mutex_);
  if (queue_.size() + being_sent_ >= options_.queue_limit) {
    ++queue_full_;
    return;
  }
  queue_.push_back(std::move(waiting));
  changed_.notify_all();
}

void OtlpExporter::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !queue_.empty() || end_ns_ != INT64_MAX; });
    if (queue_.empty()) break;
    const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), kMaxBatch));
    std::vector<Waiting> batch(std::move_iterator(queue_.begin()), std::move_iterator(end));
    queue_.erase(queue_.begin(), end);
    being_sent_ = batch.size();
    lock.unlock();
    Send(std::move(batch));
    lock.lock();
    being_sent_ = 0;
  }
  has_ended_ = true;
  changed_.notify_all();
}

void OtlpExporter::Send(std::vector<Waiting> batch) {
  int64_t pause_ns = options_.first_pause_ns;
  while (true) {
    int64_t asked_pause_ns = pause_ns;
    const std::optional<Outcome> outcome = Try(batch, &asked_pause_ns);
    std::unique_lock lock(mutex_);
    if (outcome) {
      sent_ += outcome->sent;
      refused_ += outcome->refused;
      return;
    }
    const int64_t again_ns = MonotonicNs() + asked_pause_ns;
    const auto is_over = [&] { return again_ns >= end_ns_; };
    const auto is_late = [&](const Waiting& waiting) { return again_ns > waiting.added_ns + options_.give_up_ns; };
    const int64_t late = static_cast<int64_t>(std::erase_if(batch, is_late));
    late_ += late;
    being_sent_ -= static_cast<size_t>(late);
    if (batch.empty()) return;
    if (is_over() || changed_.wait_for(lock, std::chrono::nanoseconds(asked_pause_ns), is_over)) {
      late_ += std::ssize(batch);
      return;
    }
    pause_ns = std::min(2 * pause_ns, options_.longest_pause_ns);
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
  return {{"sent", sent_},
          {"queue_full", queue_full_},
          {"refused", refused_},
          {"late", late_},
          {"waiting", static_cast<int64_t>(queue_.size() + being_sent_)}};
}

}  // namespace stackd

#include "daemon/otlp/log_record.h"

#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/config/version.h"
#include "daemon/export/export.h"
#include "daemon/otlp/packed_dump.h"
#include "daemon/resource/attributes.h"

namespace stackd {
namespace {

using opentelemetry::proto::common::v1::KeyValue;
using opentelemetry::proto::logs::v1::LogRecord;
using opentelemetry::proto::logs::v1::ResourceLogs;
using KeyValues = google::protobuf::RepeatedPtrField<KeyValue>;

// A collector takes 4 MiB at a time, and many backends cut a value at 32 KiB or less.
constexpr size_t kMaxStackBytes = 16 << 10;

constexpr char kFingerprint[] = "stackd.fingerprint";
constexpr char kDumpName[] = "stackd.dump.name";

void Add(const std::string& key, const std::string& value, KeyValues* attributes) {
  if (value.empty()) return;
  KeyValue* attribute = attributes->Add();
  attribute->set_key(key);
  attribute->mutable_value()->set_string_value(value);
}

void Add(const std::string& key, int64_t value, KeyValues* attributes) {
  KeyValue* attribute = attributes->Add();
  attribute->set_key(key);
  attribute->mutable_value()->set_int_value(value);
}

void AddList(const std::string& key, const std::string& value, KeyValues* attributes) {
  KeyValue* attribute = attributes->Add();
  attribute->set_key(key);
  attribute->mutable_value()->mutable_array_value()->add_values()->set_string_value(value);
}

std::string StackOfThread(const v1::Dump& dump, int32_t tid) {
  std::string text;
  ExportStack(dump, tid, [&text](std::string_view piece) {
    text += piece;
    return text.size() < kMaxStackBytes;
  });
  if (text.size() <= kMaxStackBytes) return text;
  // Whole lines, and so whole characters.
  text.resize(text.rfind('\n', kMaxStackBytes) + 1);
  return text + "[more in the dump]\n";
}

std::string BuildIdOf(const v1::Dump& dump, const std::string& path) {
  for (const v1::Module& module : dump.modules()) {
    if (module.path() == path) return module.build_id();
  }
  return "";
}

void AddResource(const v1::Dump& dump, KeyValues* attributes) {
  const v1::Process& process = dump.process();
  const auto& known = process.resource_attributes();
  for (const auto& [key, value] : known) {
    if (key == kImageTags || key == kImageDigests) {
      AddList(key, value, attributes);
    } else {
      Add(key, value, attributes);
    }
  }
  // OpenTelemetry's own SDKs set these where the process has not. A key may stand there once.
  const auto add_unknown = [&](const std::string& key, const auto& value) {
    if (!known.contains(key)) Add(key, value, attributes);
  };
  add_unknown(kServiceName, "unknown_service:" + process.display_name());
  add_unknown("host.name", process.hostname());
  add_unknown("process.pid", int64_t{process.pid()});
  add_unknown("process.executable.path", process.executable());
  add_unknown("process.executable.name", process.executable().substr(process.executable().rfind('/') + 1));
  add_unknown("process.executable.build_id.gnu", BuildIdOf(dump, process.executable()));
}

void AddThread(const v1::Dump& dump, int32_t tid, KeyValues* attributes) {
  if (tid == 0) return;
  Add("thread.id", tid, attributes);
  for (const v1::Thread& thread : dump.threads()) {
    if (thread.tid() == tid) Add("thread.name", thread.name(), attributes);
  }
}

void FillCrash(const v1::Dump& dump, LogRecord* record) {
  const v1::Crash& crash = dump.crash();
  KeyValues* attributes = record->mutable_attributes();
  record->set_event_name("exception");
  record->set_severity_number(opentelemetry::proto::logs::v1::SEVERITY_NUMBER_FATAL);
  record->set_severity_text("FATAL");
  record->mutable_body()->set_string_value(crash.explanation());
  Add("exception.type", crash.signal_name().empty() ? "crash" : crash.signal_name(), attributes);
  Add("exception.message", crash.explanation(), attributes);
  Add("exception.stacktrace", StackOfThread(dump, crash.tid()), attributes);
  AddThread(dump, crash.tid(), attributes);
  Add("stackd.crash.id", crash.id(), attributes);
  Add(kFingerprint, crash.fingerprint(), attributes);
  Add("stackd.trigger", "CRASH", attributes);
}

void FillHang(const v1::Dump& dump, LogRecord* record) {
  const v1::Hang& hang = dump.hang();
  KeyValues* attributes = record->mutable_attributes();
  record->set_event_name("stackd.hang");
  record->set_severity_number(opentelemetry::proto::logs::v1::SEVERITY_NUMBER_ERROR);
  record->set_severity_text("ERROR");
  record->mutable_body()->set_string_value(hang.explanation());
  Add("stackd.hang.cause", v1::Hang::Cause_Name(hang.cause()), attributes);
  Add("stackd.hang.heartbeat", hang.heartbeat(), attributes);
  Add("stackd.hang.rule", hang.rule(), attributes);
  Add(kFingerprint, hang.fingerprint(), attributes);
  Add("stackd.trigger", "HANG", attributes);
  AddThread(dump, hang.tid(), attributes);
  Add("code.stacktrace", StackOfThread(dump, hang.tid()), attributes);
}

// A record without a name and a body, with the resource of the process and the time of the dump.
LogRecord* AddRecord(const v1::Dump& dump, int64_t now_wall_ns, ResourceLogs* logs) {
  AddResource(dump, logs->mutable_resource()->mutable_attributes());
  auto* scope = logs->add_scope_logs();
  scope->mutable_scope()->set_name("stackd");
  scope->mutable_scope()->set_version(kVersion);
  LogRecord* record = scope->add_log_records();
  const int64_t time_ns = dump.create_time().seconds() * kNsPerSecond + dump.create_time().nanos();
  record->set_time_unix_nano(static_cast<uint64_t>(time_ns));
  record->set_observed_time_unix_nano(static_cast<uint64_t>(now_wall_ns));
  return record;
}

}  // namespace

bool IsEvent(const v1::Dump& dump) { return dump.has_crash() || dump.has_hang(); }

const std::string& EventFingerprint(const v1::Dump& dump) {
  return dump.has_crash() ? dump.crash().fingerprint() : dump.hang().fingerprint();
}

ResourceLogs ToResourceLogs(const v1::Dump& dump, int64_t now_wall_ns) {
  ResourceLogs logs;
  LogRecord* record = AddRecord(dump, now_wall_ns, &logs);
  dump.has_crash() ? FillCrash(dump, record) : FillHang(dump, record);
  KeyValues* attributes = record->mutable_attributes();
  Add(kDumpName, dump.name(), attributes);
  Add("stackd.dump.thread_count", dump.thread_counts().listed(), attributes);
  return logs;
}

Result<ResourceLogs> ToDumpLogs(const v1::Dump& dump, int64_t now_wall_ns) {
  Result<PackedDumpBody> body = PackDumpBody(dump);
  if (!body) return std::unexpected(std::move(body.error()));
  ResourceLogs logs;
  LogRecord* record = AddRecord(dump, now_wall_ns, &logs);
  record->set_event_name("stackd.dump");
  record->set_severity_number(opentelemetry::proto::logs::v1::SEVERITY_NUMBER_INFO);
  record->set_severity_text("INFO");
  record->mutable_body()->set_string_value(std::move(body->text));
  KeyValues* attributes = record->mutable_attributes();
  Add(kFingerprint, EventFingerprint(dump), attributes);
  Add(kDumpName, dump.name(), attributes);
  // Not that of records, by which crashes and hangs are counted.
  Add("stackd.dump.trigger", dump.has_crash() ? "CRASH" : "HANG", attributes);
  Add("stackd.dump.digest", body->digest, attributes);
  Add("stackd.dump.bytes", static_cast<int64_t>(body->json_bytes), attributes);
  return logs;
}

}  // namespace stackd

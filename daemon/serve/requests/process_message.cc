#include "daemon/serve/requests/process_message.h"

#include <algorithm>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"
#include "daemon/detect/respond/process_health.h"

namespace stackd {
namespace {

constexpr int kMaxHangs = 8;

void SetTime(int64_t wall_ns, google::protobuf::Timestamp* time) {
  time->set_seconds(wall_ns / kNsPerSecond);
  time->set_nanos(static_cast<int32_t>(wall_ns % kNsPerSecond));
}

void SetDuration(int64_t duration_ns, google::protobuf::Duration* duration) {
  duration->set_seconds(duration_ns / kNsPerSecond);
  duration->set_nanos(static_cast<int32_t>(duration_ns % kNsPerSecond));
}

v1::Hang HangMessage(const Suspicion& suspicion, int64_t now_ns) {
  const HangCapture& hang = suspicion.hang;
  v1::Hang message;
  message.set_cause(static_cast<v1::Hang::Cause>(hang.cause));
  message.set_explanation(ToValidUtf8(hang.explanation));
  message.set_tid(hang.tid);
  message.set_heartbeat(ToValidUtf8(hang.heartbeat));
  SetDuration(hang.duration_ns + std::max<int64_t>(now_ns - suspicion.seen_ns, 0), message.mutable_duration());
  message.set_rule(ToValidUtf8(hang.rule));
  return message;
}

}  // namespace

v1::Process ProcessMessage(const ProcessDescription& process) {
  v1::Process message;
  message.set_name("processes/" + process.id);
  message.set_pid(process.pid);
  message.set_display_name(ToValidUtf8(process.display_name));
  message.set_executable(ToValidUtf8(process.executable));
  message.set_argv0(ToValidUtf8(process.argv0));
  message.set_hostname(ToValidUtf8(process.hostname));
  message.set_uid(process.uid);
  if (process.start_wall_ns > 0) SetTime(process.start_wall_ns, message.mutable_start_time());
  if (process.connect_wall_ns > 0) SetTime(process.connect_wall_ns, message.mutable_connect_time());
  message.set_agent_abi_version(process.abi_version);
  message.set_share(static_cast<v1::Process::Share>(process.share));
  for (const std::string& limit : process.limits) message.add_limits(ToValidUtf8(limit));
  message.set_thread_count(process.thread_count);
  message.mutable_resource_attributes()->insert(process.resource_attributes.begin(), process.resource_attributes.end());
  return message;
}

void AddNow(const ProcessNow& now, v1::Process* message) {
  message->set_parent_pid(now.parent_pid);
  if (now.cpu_time_ns) SetDuration(*now.cpu_time_ns, message->mutable_cpu_time());
  if (now.moving_threads) message->set_moving_thread_count(*now.moving_threads);
  if (now.moving_threads || !now.suspicions.empty()) message->set_health(v1::Process::WELL);
  for (const SharedSuspicion& suspicion : now.suspicions) {
    const auto health = MakesIll(*suspicion) ? v1::Process::HUNG : v1::Process::SUSPICIOUS;
    message->set_health(std::max(message->health(), health));
    if (message->hangs_size() < kMaxHangs) *message->add_hangs() = HangMessage(*suspicion, now.now_ns);
  }
}

}  // namespace stackd

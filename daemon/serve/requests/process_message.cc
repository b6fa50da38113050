#include "daemon/serve/requests/process_message.h"

#include "daemon/base/clock.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

void SetTime(int64_t wall_ns, google::protobuf::Timestamp* time) {
  time->set_seconds(wall_ns / kNsPerSecond);
  time->set_nanos(static_cast<int32_t>(wall_ns % kNsPerSecond));
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

}  // namespace stackd

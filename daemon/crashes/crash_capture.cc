#include "daemon/crashes/crash_capture.h"

#include <utility>

namespace stackd {

CrashCapture ToCrashCapture(const CrashRecord& record) {
  CrashCapture crash;
  crash.id = {record.id[0], record.id[1]};
  crash.flags = record.flags;
  crash.tid = static_cast<int32_t>(record.tid);
  crash.signal_number = record.signal_number;
  crash.signal_code = record.signal_code;
  crash.fault_address_avma = record.fault_address_avma;
  crash.sender_pid = record.sender_pid;
  crash.sender_uid = record.sender_uid;
  crash.trap_error = record.trap_error;
  crash.trap_number = record.trap_number;
  crash.stack_start_avma = record.stack_start_avma;
  crash.stack_end_avma = record.stack_end_avma;
  crash.abort_message = record.abort_message;
  crash.exception_type = record.exception_type;
  return crash;
}

void AddCrashedThread(CrashRecord record, Recording* recording, Capture* capture) {
  if (!record.thread) {
    capture->partial = true;
    capture->notes.push_back("the stack of the thread that crashed is missing: what its process wrote of it made no sense");
    recording->AddCrashed(record.tid, std::nullopt);
    return;
  }
  recording->AddCrashed(record.tid, std::move(record.thread));
}

}  // namespace stackd

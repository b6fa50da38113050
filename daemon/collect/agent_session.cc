#include "daemon/collect/agent_session.h"

#include <algorithm>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// Dumps of itself that a process may ask for at once, and how often after that. Each is stored: more would push the dumps
// of other processes out.
constexpr int64_t kDumpRequestBurst = 10;
constexpr int64_t kDumpRequestNs = kNsPerSecond;

}  // namespace

AgentSession::AgentSession(Fd socket, uid_t peer_uid, const stackd_hello& hello, ProcessDescription description,
                           ProcessFiles files, std::unique_ptr<Ring> ring, const SharedParts& shared,
                           std::unique_ptr<HeldSpoolFile> spool_file)
    : parts_(std::move(socket), peer_uid, hello, std::move(description), std::move(files), std::move(ring), shared),
      crash_(&parts_, &threads_, spool_file.get()),
      spool_file_(std::move(spool_file)) {}

bool AgentSession::MayAskForDump() {
  const int64_t now_ns = MonotonicNs();
  if (dump_requests_paid_ns_ > now_ns + (kDumpRequestBurst - 1) * kDumpRequestNs) {
    parts_.counters->dump_requests_refused++;
    return false;
  }
  dump_requests_paid_ns_ = std::max(dump_requests_paid_ns_, now_ns) + kDumpRequestNs;
  return true;
}

bool AgentSession::OnMessage(ReceivedMessage* message, AgentRequest* request) {
  switch (message->type()) {
    case STACKD_MSG_FILE:
      if (!message->As<stackd_file>()) return false;
      parts_.process.questions().OnAnswer(message);
      return true;
    case STACKD_MSG_FD_NAMES:
    case STACKD_MSG_IMAGE:
    case STACKD_MSG_WAIT_WORDS:
      parts_.process.questions().OnAnswer(message);
      return true;
    case STACKD_MSG_TASKS:
      parts_.tasks.OnAnswer(message);
      return true;
    case STACKD_MSG_NAME: {
      const auto name = message->As<stackd_name>();
      if (name) parts_.process.OnName(*name);
      return name.has_value();
    }
    case STACKD_MSG_REPORT_FILE:
      return parts_.report_file.Keep(message);
    case STACKD_MSG_DUMP_REQUEST:
      *request = MayAskForDump() ? AgentRequest::kDump : AgentRequest::kNothing;
      return true;
    case STACKD_MSG_CRASH:
      *request = AgentRequest::kCrash;
      return true;
    case STACKD_MSG_FAULT:
      *request = AgentRequest::kModules;
      return true;
    default:
      OnState(message, request);
      return true;
  }
}

void AgentSession::OnState(ReceivedMessage* message, AgentRequest* request) {
  AgentWaker& waker = parts_.process.waker();
  switch (message->type()) {
    case STACKD_MSG_BELL:
      waker.OnBell(message);
      // What a capture has asked for since the agent's thread has left, or before it could ring, waits for another one.
      if (parts_.turns.is_wanted()) waker.Wake();
      break;
    case STACKD_MSG_AWAKE:
      if (waker.OnAwake()) *request = AgentRequest::kPrefetch;
      break;
    case STACKD_MSG_FILTERED:
      if (const auto filtered = message->As<stackd_filtered>()) parts_.process.OnFiltered(filtered->filtered != 0);
      break;
    case STACKD_MSG_MEMORY:
      parts_.process.OnMemory(message);
      break;
    case STACKD_MSG_HAS_TASKS:
      parts_.tasks.OnHasTasks();
      break;
    default:
      break;
  }
}

void AgentSession::OnClosed() {
  parts_.process.OnClosed();
  parts_.tasks.OnClosed();
  parts_.ring.Interrupt();
}

void AgentSession::SayDumpIsRead() {
  SendMessage(parts_.process.socket_fd(), {STACKD_MSG_DUMP_READ, sizeof(stackd_message_header)});
}

}  // namespace stackd

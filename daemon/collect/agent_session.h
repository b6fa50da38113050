// One agent's connection: its messages, and the parts of its process.
//
// Threads of three kinds meet here, and each has a type of its own:
//   AgentSession    the server thread of the collector, which reads the socket
//   ThreadCapturer  threads that serve requests
//   CrashCapturer   threads of CrashIntake, and of ModulePrefetcher
#pragma once

#include <cstdint>
#include <memory>

#include "daemon/collect/agent_parts.h"
#include "daemon/collect/crash_capturer.h"
#include "daemon/collect/message_socket.h"
#include "daemon/collect/thread_capturer.h"
#include "daemon/crashes/spool_intake.h"

namespace stackd {

// What a message asks of the collector.
enum class AgentRequest { kNothing, kDump, kCrash, kModules, kPrefetch };

class AgentSession {
 public:
  // For all but the last see AgentParts. `spool_file`, which may be nullptr, is let go when nothing more is to come out of
  // the ring.
  AgentSession(Fd socket, uid_t peer_uid, const stackd_hello& hello, ProcessDescription description, ProcessFiles files,
               std::unique_ptr<Ring> ring, const SharedParts& shared, std::unique_ptr<HeldSpoolFile> spool_file);

  // The server thread. False: the message makes no sense, drop the connection. What of its fds is not taken stays in it.
  // A dump is requested only by a process that has not asked too often.
  bool OnMessage(ReceivedMessage* message, AgentRequest* request);
  void OnClosed();

  // Any thread.
  const std::string& id() const { return parts_.process.id(); }
  const AgentProcess& process() const { return parts_.process; }
  AgentParts& parts() { return parts_; }
  ThreadCapturer& threads() { return threads_; }
  CrashCapturer& crash() { return crash_; }
  void SayDumpIsRead();

 private:
  bool MayAskForDump();
  // Takes a message about the state of the process.
  void OnState(ReceivedMessage* message, AgentRequest* request);

  AgentParts parts_;
  ThreadCapturer threads_{&parts_};
  CrashCapturer crash_;
  // When the process will have asked for no more dumps than it may: the server thread's.
  int64_t dump_requests_paid_ns_ = 0;
  // Last, so that it goes first: closing the files above may wait.
  const std::unique_ptr<HeldSpoolFile> spool_file_;
};

}  // namespace stackd

// The thread that serves the connections of all agents: registers processes, and reads their messages.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/collect/agent_session.h"
#include "daemon/collect/capture_request.h"
#include "daemon/collect/crash_intake.h"
#include "daemon/collect/message_socket.h"
#include "daemon/collect/module_prefetcher.h"
#include "daemon/collect/own_dump_queue.h"
#include "daemon/collect/session_table.h"
#include "daemon/crashes/spool.h"
#include "daemon/crashes/spool_intake.h"

namespace stackd {

class AgentServer {
 public:
  // What the server registers processes with, and hands requests to. All must outlive it.
  struct Parts {
    const CollectorOptions* options;
    SharedParts shared;
    const Spool* spool;  // nullptr: no process gets a file
    std::shared_ptr<SpoolIntake> spool_intake;
    CrashIntake* crash_intake;
    ModulePrefetcher* prefetcher;
    OwnDumpQueue* own_dumps;
    SessionTable* sessions;
  };

  AgentServer(Parts parts, Fd listener) : parts_(std::move(parts)), listener_(std::move(listener)) {}
  ~AgentServer() { Stop(); }

  // To be called once.
  Result<void> Start();
  void Stop();

 private:
  // A connection that is not registered: it has not said hello, or a moment ago only.
  struct PendingConnection {
    Fd socket;
    int64_t since_ns;
    std::vector<ReceivedMessage> messages = {};  // HELLO, and BELL
    int64_t due_ns = 0;                          // when it is registered, if it is still there
  };
  // A second connection of a process, of the package of its runtime.
  struct RuntimeConnection {
    Fd socket;
    int agent_fd;
  };

  bool Watch(int fd);
  void Serve();
  void Accept();
  void Drop(int fd);
  size_t CountSilent() const;
  void DropOldest();
  void ReadFirstMessage(int fd);
  // Whether the connection that sent this is to stay one.
  bool KeepsWaiting(PendingConnection* connection, ReceivedMessage* message) const;
  // Registers its process with what it has said so far.
  void RegisterPending(int fd);
  void RegisterDue();
  // The time until the next process is due; -1: none is.
  int UntilDueMs() const;
  // Takes the socket if it registers the process.
  void Register(Fd* socket, ReceivedMessage* message);
  // Takes the socket if its process is registered.
  void AttachRuntime(Fd* socket, ReceivedMessage* message);
  void ReadRuntime(int fd);
  void CloseRuntime(int fd);
  bool MakeRoomFor(uid_t uid);
  // The file is held until the returned handle is gone. Leaves `fd` invalid if there is none.
  std::unique_ptr<HeldSpoolFile> MakeSpoolFile(const Spool::Owner& owner, Fd* fd);
  void Reject(int fd, const std::string& reason);
  void Read(int fd);
  // False: the connection is closed.
  bool HandleMessage(int fd, ReceivedMessage message);
  void Close(int fd);
  void DropSilent();
  std::string NewId(const stackd_hello& hello) const;

  const Parts parts_;
  const Fd listener_;
  Fd epoll_;
  Fd stop_event_;

  // The server thread uses these.
  bool listener_rests_ = false;
  std::unordered_map<int, PendingConnection> pending_;
  std::unordered_map<int, std::shared_ptr<AgentSession>> by_socket_;
  std::unordered_map<int, RuntimeConnection> runtimes_;  // one of each agent

  std::thread thread_;
};

}  // namespace stackd

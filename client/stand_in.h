// Registers a process that has no agent with a daemon, in the place of the agent.
//
// The daemon reads what stackctl has opened, so it needs no right of its own, nor to see the process. A caller gets no more
// out of it than they may read themselves. Nothing runs in the process.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "client/unregistered_process.h"
#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace stackd {

class StandIn {
 public:
  // `dir` of the daemon. Fails with a sentence if no daemon serves it, or it refuses.
  static Result<std::unique_ptr<StandIn>> Register(UnregisteredProcess process, const std::string& dir);
  // The daemon forgets the process then.
  ~StandIn();

 private:
  StandIn(UnregisteredProcess process, Fd socket);

  void Serve();
  void SendFile(const stackd_open_file& request);

  const UnregisteredProcess process_;
  const Fd socket_;
  const Fd stop_event_;
  std::thread server_;
};

}  // namespace stackd

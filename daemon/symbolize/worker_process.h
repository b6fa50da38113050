// The daemon's side of one symbol worker: starts it, asks it, and ends it when it takes too long.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/symbolize/debug_folders.h"
#include "daemon/symbolize/symbolizer.h"
#include "daemon/symbolize/worker_protocol.h"

namespace stackd {

struct WorkerOptions {
  uint64_t memory_limit_bytes;
  std::vector<std::string> debug_dirs;
  // Time without any answer after which the worker is killed.
  int64_t silence_limit_ns;
};

enum class WorkerEnd {
  kAnswered,     // every address
  kOutOfMemory,  // the rest: some addresses are not answered, and the worker is gone
  kCrashed,
  kKilled,  // with SIGKILL, and not by us
  kTimedOut,
  kNotStarted,
  kUnconfined,  // the kernel did not let it give up its rights, so it ended
  kCancelled,
};

struct WorkerRequest {
  uint64_t module_id;
  int module_fd;
  std::string path;
  Phase phase;
  std::span<const uint64_t> svmas;  // at most kMaxRequestAddresses
};

// One thread at a time, but for Cancel and deaths.
class WorkerProcess {
 public:
  explicit WorkerProcess(WorkerOptions options);
  ~WorkerProcess();

  using OnAnswer = std::function<void(uint32_t address_index, SymbolQuality quality, SourceLocation location)>;
  // Starts the worker if there is none. `on_answer` is called for each address, in any order, as answers come.
  WorkerEnd Ask(const WorkerRequest& request, const OnAnswer& on_answer);

  // Ends the worker, if there is one; it has nothing to do. The next Ask starts another.
  void EndIdle();
  bool is_running() const { return pid_ > 0; }

  // From any thread: Ask returns soon, now and always.
  void Cancel();

  // Times that the worker ended without being told to.
  int64_t deaths() const { return deaths_.load(std::memory_order_relaxed); }

 private:
  bool Start();
  bool Send(const WorkerRequest& request);
  // Opens what the worker asks for and sends the fd. False if the worker may not have it, or does not read it.
  bool SendFile(std::string_view request_body);
  WorkerEnd ReadAnswers(const WorkerRequest& request, const OnAnswer& on_answer);
  // Waits for the end of a worker whose socket has closed, or that is to be killed. Returns what ended it; nullopt if it
  // ended as it should, between two requests.
  std::optional<WorkerEnd> Reap(WorkerEnd cause);
  // Kills the worker and returns its wait status; -1 if that is not known.
  int Kill();

  const WorkerOptions options_;
  const DebugFolders debug_folders_;
  pid_t pid_ = -1;
  std::string buffer_;  // of answers, read and not parsed yet
  std::mutex mutex_;    // guards socket_ against Cancel, and cancelled_
  Fd socket_;
  bool cancelled_ = false;
  std::atomic<int64_t> deaths_ = 0;
};

}  // namespace stackd

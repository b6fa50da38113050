// stackd.v1.Stackd: translates, and calls the stages.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <expected>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/collect/collector.h"
#include "daemon/export/export.h"
#include "daemon/pipeline/pipeline.h"
#include "daemon/serve/requests/call.h"
#include "daemon/serve/requests/compared_dumps.h"
#include "daemon/serve/requests/request_ids.h"
#include "daemon/serve/requests/rpc_status.h"
#include "daemon/serve/service/served_parts.h"
#include "daemon/serve/service/watch_dumps.h"
#include "daemon/store/dump_store.h"
#include "daemon/store/raw_capture.h"
#include "stackd/v1/stackd.grpc.pb.h"

namespace stackd {

// Does not ask who calls: that is GuardedStackd's. Its methods may block; WatchDumps holds no thread.
class StackdService {
 public:
  explicit StackdService(const ServedParts& parts);

  // Ends what would else last for ever.
  void EndStreams() { watchers_.EndAll(); }

  grpc::Status ListProcesses(Call& call, const v1::ListProcessesRequest& request, v1::ListProcessesResponse* response);
  grpc::Status GetProcess(Call& call, const v1::GetProcessRequest& request, v1::Process* response);
  grpc::Status CreateDump(Call& call, const v1::CreateDumpRequest& request, v1::Dump* response);
  grpc::Status GetDump(Call& call, const v1::GetDumpRequest& request, v1::Dump* response);
  grpc::Status ListDumps(Call& call, const v1::ListDumpsRequest& request, v1::ListDumpsResponse* response);
  grpc::Status DeleteDump(Call& call, const v1::DeleteDumpRequest& request, google::protobuf::Empty* response);
  grpc::Status ExportDump(Call& call, const v1::ExportDumpRequest& request, const Sink& sink);
  grpc::Status ResymbolizeDump(Call& call, const v1::ResymbolizeDumpRequest& request, v1::Dump* response);
  grpc::Status CompareDumps(Call& call, const v1::CompareDumpsRequest& request, v1::DumpComparison* response);
  grpc::Status ListStackGroups(Call& call, const v1::ListStackGroupsRequest& request,
                               v1::ListStackGroupsResponse* response);
  grpc::Status GetStackGroup(Call& call, const v1::GetStackGroupRequest& request, v1::CrashGroup* response);
  grpc::Status GetDaemon(Call& call, const v1::GetDaemonRequest& request, v1::Daemon* response);
  // See DumpWatchers::Open.
  std::expected<std::shared_ptr<DumpWatch>, grpc::Status> WatchDumps(const v1::WatchDumpsRequest& request,
                                                                     DumpStream* stream);

 private:
  using SharedDump = std::shared_ptr<const v1::Dump>;

  // The process that a request names. `response` is its status if it is not `found`.
  struct Found {
    std::string id;
    v1::Process process;
    grpc::Status response;
  };
  // The process, and what it does now.
  v1::Process Describe(const ProcessDescription& process) const;
  Found FindProcess(const std::string& typed) const;
  // Empty: the newest.
  Result<SharedDump> FindDump(const std::string& name) const;
  // The registers and stacks of a dump.
  Result<RawCapture> FindRaw(const std::string& dump_name) const;
  Result<v1::DumpComparison> Compare(const ComparedDumps& names) const;
  Result<SharedDump> Dump(Call& call, const std::string& process_id, const v1::CreateDumpRequest& request,
                          int64_t deadline_ns);
  void KeepIfUnstored(const SharedDump& dump);

  const ServedParts parts_;
  const int64_t start_wall_ns_;
  DumpWatchers watchers_;
  RequestIds request_ids_;
  std::atomic<int> exports_ = 0;
  // A comparison holds three whole dumps in memory, so there is one at a time.
  std::timed_mutex comparing_;

  mutable std::mutex mutex_;
  // The last few that the store did not take: the caller that made one can still export it.
  std::deque<SharedDump> unstored_;
};

}  // namespace stackd

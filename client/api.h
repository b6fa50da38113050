// The daemon's API as plain calls: the only part of the client that knows gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "client/diagnose_tls.h"
#include "daemon/base/result.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Errors have the message and the reason of the daemon. Where none was reached they are kUnavailable without a reason, and
// say what to do.
class Api {
 public:
  // Connects with the first call. Each unary call ends after `timeout_ms`, or 15 s
  // if that is 0; streams end after `timeout_ms`, or never.
  Api(DaemonAddress daemon, int64_t timeout_ms);
  ~Api();

  Result<v1::ListProcessesResponse> ListProcesses(const v1::ListProcessesRequest& request);
  Result<v1::Process> GetProcess(const v1::GetProcessRequest& request);
  Result<v1::Dump> CreateDump(const v1::CreateDumpRequest& request);
  Result<v1::Dump> GetDump(const v1::GetDumpRequest& request);
  Result<v1::ListDumpsResponse> ListDumps(const v1::ListDumpsRequest& request);
  Result<void> DeleteDump(const v1::DeleteDumpRequest& request);
  Result<v1::Dump> ResymbolizeDump(const v1::ResymbolizeDumpRequest& request);
  Result<v1::DumpComparison> CompareDumps(const v1::CompareDumpsRequest& request);
  Result<v1::ListStackGroupsResponse> ListStackGroups(const v1::ListStackGroupsRequest& request);
  Result<v1::CrashGroup> GetStackGroup(const v1::GetStackGroupRequest& request);
  Result<v1::Daemon> GetDaemon();
  // `sink` returns false to end it.
  Result<void> WatchDumps(const v1::WatchDumpsRequest& request, const std::function<bool(const v1::Dump&)>& sink);
  Result<void> ExportDump(const v1::ExportDumpRequest& request, const std::function<bool(std::string_view)>& sink);

  const std::string& address() const { return daemon_.address; }

 private:
  struct Channel;

  const DaemonAddress daemon_;
  const int64_t timeout_ms_;
  std::unique_ptr<Channel> channel_;
};

}  // namespace stackd

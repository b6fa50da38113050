// What each method of the API needs of its caller, by the type of its request: one table for gRPC and for HTTP.
#pragma once

#include "daemon/serve/requests/call.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

inline Call::Method MethodOf(const v1::ListProcessesRequest&) { return {.name = "ListProcesses", .role = Role::kRead}; }

inline Call::Method MethodOf(const v1::GetProcessRequest& request) {
  return {.name = "GetProcess", .resource = request.name(), .role = Role::kRead};
}

inline Call::Method MethodOf(const v1::CreateDumpRequest& request) {
  return {.name = "CreateDump", .resource = request.process(), .role = Role::kDump};
}

inline Call::Method MethodOf(const v1::GetDumpRequest& request) {
  return {.name = "GetDump", .resource = request.name(), .role = Role::kRead};
}

inline Call::Method MethodOf(const v1::ListDumpsRequest& request) {
  return {.name = "ListDumps", .resource = request.parent(), .role = Role::kRead};
}

inline Call::Method MethodOf(const v1::DeleteDumpRequest& request) {
  return {.name = "DeleteDump", .resource = request.name(), .role = Role::kAdmin};
}

inline Call::Method MethodOf(const v1::WatchDumpsRequest& request) {
  return {.name = "WatchDumps", .resource = request.parent(), .role = Role::kRead, .is_stream = true};
}

inline Call::Method MethodOf(const v1::ExportDumpRequest& request) {
  // Registers and stacks as they were copied hold more than names.
  if (request.format() == v1::ExportDumpRequest::MINIDUMP) {
    return {.name = "ExportDump as a minidump", .resource = request.name(), .role = Role::kAdmin, .is_stream = true};
  }
  return {.name = "ExportDump", .resource = request.name(), .role = Role::kRead, .is_stream = true};
}

inline Call::Method MethodOf(const v1::ResymbolizeDumpRequest& request) {
  return {.name = "ResymbolizeDump", .resource = request.name(), .role = Role::kDump};
}

inline Call::Method MethodOf(const v1::CompareDumpsRequest& request) {
  return {.name = "CompareDumps", .resource = request.after(), .role = Role::kRead};
}

inline Call::Method MethodOf(const v1::ListStackGroupsRequest&) { return {.name = "ListStackGroups", .role = Role::kRead}; }

inline Call::Method MethodOf(const v1::GetStackGroupRequest& request) {
  return {.name = "GetStackGroup", .resource = request.name(), .role = Role::kRead};
}

inline Call::Method MethodOf(const v1::GetDaemonRequest&) { return {.name = "GetDaemon", .role = Role::kRead}; }

}  // namespace stackd

#include "daemon/serve/service/service.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/loop_watch.h"
#include "daemon/base/text.h"
#include "daemon/compare/compare.h"
#include "daemon/config/version.h"
#include "daemon/export/export.h"
#include "daemon/export/minidump.h"
#include "daemon/log/log.h"
#include "daemon/serve/requests/comparison_view.h"
#include "daemon/serve/requests/dump_view.h"
#include "daemon/serve/requests/frame_filter.h"
#include "daemon/serve/requests/page_token.h"
#include "daemon/serve/requests/process_message.h"
#include "daemon/serve/requests/resolve_process.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

constexpr int64_t kDefaultDumpNs = 5 * kNsPerSecond;
constexpr int64_t kMinMarginNs = 10 * kNsPerMs;
constexpr int64_t kMaxMarginNs = 2 * kNsPerSecond;
constexpr int64_t kLongestDumpNs = 60 * kNsPerSecond;
constexpr auto kLongestWait = std::chrono::seconds(60);
constexpr int32_t kMaxStackBytes = 256 << 10;
constexpr int32_t kDefaultPageSize = 100;
constexpr int32_t kMaxPageSize = 1000;
// Their list is a small answer.
constexpr size_t kFewProcesses = 16;
constexpr size_t kMaxRequestIdBytes = 256;
constexpr size_t kKeptUnstored = 4;
// Each holds a whole dump in memory and a thread for as long as its reader is slow.
constexpr int kMaxExports = 16;

constexpr char kDumpType[] = "stackd.v1.Dump";
constexpr char kGroupType[] = "stackd.v1.CrashGroup";
constexpr char kProcessType[] = "stackd.v1.Process";

// When a dump must be there, so that its answer still reaches a caller with this deadline.
int64_t DumpDeadlineNs(std::chrono::system_clock::time_point caller_deadline) {
  int64_t now_ns = MonotonicNs();
  auto left = caller_deadline - std::chrono::system_clock::now();
  int64_t left_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  // A caller who sets none may never come back for the answer.
  if (caller_deadline == std::chrono::system_clock::time_point::max()) return now_ns + kDefaultDumpNs;
  int64_t margin_ns = std::clamp(left_ns / 5, kMinMarginNs, kMaxMarginNs);
  return now_ns + std::clamp(left_ns - margin_ns, std::max<int64_t>(left_ns / 2, 0), kLongestDumpNs);
}

// What the store says, in the reasons of the API.
Status StoreStatus(Status status) {
  if (status.code == Code::kNotFound) {
    if (status.reason.empty()) status.reason = "DUMP_NOT_FOUND";
  } else if (status.code != Code::kInvalidArgument && status.reason != "RAW_CAPTURE_GONE") {
    status = {Code::kUnavailable, std::move(status.message), "STORE_UNAVAILABLE"};
  }
  return status;
}

std::string FieldOf(const std::string& reason, const std::string& name_field) {
  if (reason == "BAD_PAGE_TOKEN") return "page_token";
  if (reason == "BAD_PAGE_SIZE") return "page_size";
  if (reason == "BAD_FILTER") return "filter";
  return name_field;
}

grpc::Status StoreFailure(Status status, const std::string& name_field, const std::string& name,
                          const char* type = kDumpType) {
  status = StoreStatus(std::move(status));
  std::string field = FieldOf(status.reason, name_field);
  return ToGrpcStatus(status, {.resource_type = type, .resource_name = name, .field = field});
}

grpc::Status BadField(const std::string& field, std::string message, std::string reason) {
  return ToGrpcStatus({Code::kInvalidArgument, std::move(message), std::move(reason)}, {.field = field});
}

grpc::Status BadFrames() {
  return BadField("frames", "frames must be ALL_FRAMES, MANAGED_FRAMES or NATIVE_FRAMES", "BAD_FRAMES");
}

// No filter sees the frames of a view that has none: the dump may be large.
v1::Dump Answer(const std::shared_ptr<const v1::Dump>& dump, v1::FrameFilter filter, v1::DumpView view) {
  return view == v1::DUMP_VIEW_BASIC ? BasicView(*dump) : ViewOf(*WithFrames(dump, filter), view);
}

bool Holds(const ProcessDescription& process, const std::string& part) {
  return ToValidUtf8(process.display_name).find(part) != std::string::npos ||
         process.executable.find(part) != std::string::npos || process.hostname.find(part) != std::string::npos;
}

// nullptr for what is not made from a Dump: a minidump, or a format that this version does not know.
void (*Exporter(v1::ExportDumpRequest::Format format))(const v1::Dump&, const Sink&) {
  switch (format) {
    case v1::ExportDumpRequest::FORMAT_UNSPECIFIED:
    case v1::ExportDumpRequest::TEXT:
      return ExportText;
    case v1::ExportDumpRequest::TEXT_BY_THREAD:
      return ExportTextByThread;
    case v1::ExportDumpRequest::JSON:
      return ExportJson;
    case v1::ExportDumpRequest::FOLDED:
      return ExportFolded;
    case v1::ExportDumpRequest::PPROF:
      return ExportPprof;
    case v1::ExportDumpRequest::SPEEDSCOPE:
      return ExportSpeedscope;
    default:
      return nullptr;
  }
}

}  // namespace

StackdService::StackdService(const ServedParts& parts)
    : parts_(parts), start_wall_ns_(WallNs()), watchers_(parts.pipeline, parts.store, parts.watch_queue_limit) {}

v1::Process StackdService::Describe(const ProcessDescription& process) const {
  v1::Process message = ProcessMessage(process);
  const ProcessActivity activity = parts_.collector->ReadActivity(process.id);
  ProcessNow now{.parent_pid = activity.parent_pid, .cpu_time_ns = activity.cpu_time_ns, .now_ns = MonotonicNs()};
  if (parts_.moving_threads) now.moving_threads = parts_.moving_threads(process.id);
  if (parts_.process_health != nullptr) now.suspicions = parts_.process_health->SuspicionsOf(process.id);
  AddNow(now, &message);
  return message;
}

StackdService::Found StackdService::FindProcess(const std::string& typed) const {
  std::vector<ProcessDescription> processes = parts_.collector->Processes();
  ProcessChoice choice = ResolveProcess(typed, processes);
  if (choice.process != nullptr) return {choice.process->id, Describe(*choice.process), {}};

  // A process that left dumps behind was there: "exited" tells more than "not found".
  if (choice.error.code == Code::kNotFound && typed.starts_with("processes/")) {
    Result<DumpPage> left = parts_.store->List({.parent = typed, .page_size = 1});
    if (left && !left->dumps.empty()) {
      choice.error = {Code::kNotFound, typed + " has exited; stackctl list shows the dumps it left", "PROCESS_EXITED"};
    }
  }
  ErrorSubject subject{.resource_type = kProcessType, .resource_name = typed};
  for (const std::string& candidate : choice.candidates) {
    std::string& list = subject.metadata["candidates"];
    list += (list.empty() ? "" : ",") + candidate;
  }
  return {{}, {}, ToGrpcStatus(choice.error, subject)};
}

Result<StackdService::SharedDump> StackdService::FindDump(const std::string& name) const {
  {
    std::lock_guard lock(mutex_);
    for (const SharedDump& dump : unstored_) {
      if (dump->name() == name) return dump;
    }
  }
  std::string stored_name = name;
  if (name.empty()) {
    Result<std::string> newest = parts_.store->Newest();
    if (!newest) return std::unexpected(newest.error());
    stored_name = *newest;
  }
  return parts_.store->Find(stored_name);
}

Result<RawCapture> StackdService::FindRaw(const std::string& dump_name) const {
  Result<std::string> raw = parts_.store->GetRaw(dump_name);
  if (raw) return ParseRaw(*raw);
  if (raw.error().reason != "RAW_CAPTURE_GONE") return std::unexpected(raw.error());
  return Error(Code::kFailedPrecondition,
               "a minidump is made from registers and stacks, and the store has none of this dump (any more), only names; "
               "text, json and folded can be had",
               raw.error().reason);
}

void StackdService::KeepIfUnstored(const SharedDump& dump) {
  if (dump->stored()) return;
  std::lock_guard lock(mutex_);
  unstored_.push_front(dump);
  if (unstored_.size() > kKeptUnstored) unstored_.pop_back();
}

grpc::Status StackdService::ListProcesses(Call& call, const v1::ListProcessesRequest& request,
                                          v1::ListProcessesResponse* response) {
  if (request.page_size() < 0) return BadField("page_size", "page_size must not be negative", "BAD_PAGE_SIZE");
  size_t page_size =
      static_cast<size_t>(request.page_size() == 0 ? kDefaultPageSize : std::min(request.page_size(), kMaxPageSize));
  PagePlace last;
  if (!request.page_token().empty()) {
    Result<PagePlace> place = DecodePageToken(request.page_token(), request.filter());
    if (!place) return ToGrpcStatus(place.error(), {.field = "page_token"});
    last = *place;
  }
  std::vector<ProcessDescription> processes = parts_.collector->Processes();
  if (processes.size() > kFewProcesses) {
    if (grpc::Status turn = call.TakeTurn(); !turn.ok()) return turn;
  }
  auto place = [](const ProcessDescription& process) { return PagePlace{process.connect_wall_ns, process.id}; };
  std::sort(processes.begin(), processes.end(),
            [&](const auto& a, const auto& b) { return place(b).ComesAfter(place(a)); });
  for (const ProcessDescription& process : processes) {
    if (!request.page_token().empty() && !place(process).ComesAfter(last)) continue;
    if (!Holds(process, request.filter())) continue;
    if (static_cast<size_t>(response->processes_size()) == page_size) {
      response->set_next_page_token(EncodePageToken(last, request.filter()));
      break;
    }
    *response->add_processes() = Describe(process);
    last = place(process);
  }
  return grpc::Status::OK;
}

grpc::Status StackdService::GetProcess(Call&, const v1::GetProcessRequest& request, v1::Process* response) {
  Found found = FindProcess(request.name());
  *response = std::move(found.process);
  return found.response;
}

Result<StackdService::SharedDump> StackdService::Dump(Call& call, const std::string& process_id,
                                                      const v1::CreateDumpRequest& request, int64_t deadline_ns) {
  CaptureRequest capture{.trigger = Trigger::kRequest, .deadline_ns = deadline_ns};
  if (request.max_stack_bytes() > 0) {
    capture.max_stack_bytes = static_cast<uint32_t>(std::min(request.max_stack_bytes(), kMaxStackBytes));
  }
  if (request.quiet() == v1::ONLY) capture.quiet = Quiet::kOnly;
  if (request.quiet() == v1::NEVER) capture.quiet = Quiet::kNever;
  const auto create = [&] {
    return parts_.pipeline->CreateDump(process_id, capture, [&] { return call.ChargeCapture(); });
  };
  if (request.unstored()) {
    capture.is_sample = true;
    capture.quiet = Quiet::kOnly;
    return create();
  }
  SharedDump made;
  auto make = [&]() -> Result<std::string> {
    Result<SharedDump> dump = create();
    if (!dump) return std::unexpected(dump.error());
    made = *dump;
    KeepIfUnstored(made);
    return made->name();
  };
  Result<std::string> name =
      request.request_id().empty() ? make() : request_ids_.Once(request.request_id(), deadline_ns, make);
  if (!name) return std::unexpected(name.error());
  if (made != nullptr) return made;
  Result<SharedDump> earlier = FindDump(*name);
  if (!earlier) return std::unexpected(StoreStatus(earlier.error()));
  return earlier;
}

grpc::Status StackdService::CreateDump(Call& call, const v1::CreateDumpRequest& request, v1::Dump* response) {
  const int64_t deadline_ns = DumpDeadlineNs(call.deadline());
  if (request.max_stack_bytes() < 0) {
    return BadField("max_stack_bytes", "max_stack_bytes must not be negative", "BAD_STACK_BYTES");
  }
  if (request.request_id().size() > kMaxRequestIdBytes) {
    return BadField("request_id", "request_id must not be longer than 256 bytes", "BAD_NAME");
  }
  if (!v1::FrameFilter_IsValid(request.frames())) return BadFrames();
  if (!v1::Quiet_IsValid(request.quiet())) return BadField("quiet", "quiet must be PREFER, ONLY or NEVER", "BAD_QUIET");
  if (request.unstored() && !request.request_id().empty()) {
    return BadField("request_id", "request_id needs a dump that is stored: leave out unstored", "BAD_NAME");
  }
  if (request.unstored() && request.quiet() == v1::NEVER) {
    return BadField("quiet", "quiet must not be NEVER with unstored: such a dump interrupts nothing", "BAD_QUIET");
  }
  Found found = FindProcess(request.process());
  if (!found.response.ok()) return found.response;
  Result<SharedDump> dump = Dump(call, found.id, request, deadline_ns);
  if (!dump) {
    Status status = dump.error();
    // It was connected a moment ago.
    if (status.code == Code::kNotFound && status.reason.empty()) status.reason = "PROCESS_EXITED";
    return ToGrpcStatus(
        status,
        {.resource_type = kProcessType, .resource_name = found.process.name(), .retry_after_ns = call.retry_after_ns()});
  }
  if (grpc::Status turn = call.TakeTurn(); !turn.ok()) return turn;
  *response = Answer(*dump, request.frames(), request.view());
  return grpc::Status::OK;
}

grpc::Status StackdService::GetDump(Call& call, const v1::GetDumpRequest& request, v1::Dump* response) {
  if (!v1::FrameFilter_IsValid(request.frames())) return BadFrames();
  if (grpc::Status turn = call.TakeTurn(); !turn.ok()) return turn;
  Result<SharedDump> dump = FindDump(request.name());
  if (!dump) return StoreFailure(dump.error(), "name", request.name());
  *response = Answer(*dump, request.frames(), request.view());
  return grpc::Status::OK;
}

grpc::Status StackdService::ListDumps(Call& call, const v1::ListDumpsRequest& request, v1::ListDumpsResponse* response) {
  if (!v1::Dump::Trigger_IsValid(request.trigger())) {
    return BadField("trigger", "trigger must be REQUEST, HANG, CRASH or SELF", "BAD_FILTER");
  }
  DumpQuery query{request.parent(), request.filter(), request.page_size(), request.page_token(), request.trigger()};
  if (grpc::Status turn = call.TakeTurn(); !turn.ok()) return turn;
  Result<DumpPage> page = parts_.store->List(query);
  if (!page) return StoreFailure(page.error(), "parent", request.parent());
  response->set_next_page_token(page->next_page_token);
  for (v1::Dump& dump : page->dumps) *response->add_dumps() = std::move(dump);
  return grpc::Status::OK;
}

grpc::Status StackdService::DeleteDump(Call&, const v1::DeleteDumpRequest& request, google::protobuf::Empty*) {
  Result<void> deleted = parts_.store->Delete(request.name());
  if (!deleted) return StoreFailure(deleted.error(), "name", request.name());
  Log(LogLevel::kInfo, "dump deleted", {{"dump", request.name()}});
  return grpc::Status::OK;
}

std::expected<std::shared_ptr<DumpWatch>, grpc::Status> StackdService::WatchDumps(const v1::WatchDumpsRequest& request,
                                                                                  DumpStream* stream) {
  return watchers_.Open(request, stream);
}

grpc::Status StackdService::ExportDump(Call&, const v1::ExportDumpRequest& request, const Sink& sink) {
  auto exporter = Exporter(request.format());
  if (exporter == nullptr && request.format() != v1::ExportDumpRequest::MINIDUMP) {
    return BadField("format", "format must be TEXT, TEXT_BY_THREAD, JSON, FOLDED, PPROF, SPEEDSCOPE or MINIDUMP",
                    "BAD_FORMAT");
  }
  if (!v1::FrameFilter_IsValid(request.frames())) return BadFrames();
  struct Slot {
    std::atomic<int>& used;
    int before = used.fetch_add(1);
    ~Slot() { --used; }
  } slot{exports_};
  if (slot.before >= kMaxExports) {
    return ToGrpcStatus({Code::kResourceExhausted, "too many exports are running; try again", "TOO_MANY_EXPORTS"});
  }
  Result<SharedDump> dump = FindDump(request.name());
  if (!dump) return StoreFailure(dump.error(), "name", request.name());
  if (exporter != nullptr) {
    exporter(*WithFrames(*dump, request.frames()), sink);
  } else {
    Result<RawCapture> raw = FindRaw((*dump)->name());
    if (!raw) return StoreFailure(raw.error(), "name", request.name());
    ExportMinidump(*raw, sink);
  }
  return grpc::Status::OK;
}

grpc::Status StackdService::ResymbolizeDump(Call& call, const v1::ResymbolizeDumpRequest& request, v1::Dump* response) {
  const int64_t deadline_ns = DumpDeadlineNs(call.deadline());
  std::string name = request.name();
  if (name.empty()) {
    Result<std::string> newest = parts_.store->Newest();
    if (!newest) return StoreFailure(newest.error(), "name", name);
    name = *newest;
  }
  Result<SharedDump> dump = parts_.pipeline->Resymbolize(name, deadline_ns, [&] { return call.ChargeCapture(); });
  if (!dump) {
    const Code code = dump.error().code;
    const bool is_of_store = code != Code::kResourceExhausted && code != Code::kDeadlineExceeded;
    if (is_of_store) return StoreFailure(dump.error(), "name", name);
    return ToGrpcStatus(dump.error(), {.retry_after_ns = call.retry_after_ns()});
  }
  if (grpc::Status turn = call.TakeTurn(); !turn.ok()) return turn;
  *response = Answer(*dump, v1::ALL_FRAMES, request.view());
  return grpc::Status::OK;
}

Result<v1::DumpComparison> StackdService::Compare(const ComparedDumps& names) const {
  Result<SharedDump> before = FindDump(names.before);
  if (!before) return std::unexpected(StoreStatus(before.error()));
  Result<SharedDump> after = FindDump(names.after);
  if (!after) return std::unexpected(StoreStatus(after.error()));
  const SharedDump shown_before = WithFrames(*before, v1::ALL_FRAMES), shown_after = WithFrames(*after, v1::ALL_FRAMES);
  Result<DumpComparer> comparer = DumpComparer::Start(*shown_before, *shown_after);
  if (!comparer) return std::unexpected(comparer.error());
  for (const std::string& name : names.between) {
    // A dump that was deleted a moment ago is none.
    if (Result<SharedDump> between = FindDump(name)) comparer->AddBetween(*WithFrames(*between, v1::ALL_FRAMES));
  }
  return comparer->Finish();
}

grpc::Status StackdService::CompareDumps(Call& call, const v1::CompareDumpsRequest& request, v1::DumpComparison* response) {
  std::unique_lock turn(comparing_, std::min(call.deadline(), std::chrono::system_clock::now() + kLongestWait));
  if (!turn) return ToGrpcStatus({Code::kDeadlineExceeded, "other comparisons took too long"});
  if (grpc::Status has_turn = call.TakeTurn(); !has_turn.ok()) return has_turn;
  Result<ComparedDumps> names = ChooseComparedDumps(*parts_.store, request.before(), request.after());
  if (!names) return StoreFailure(names.error(), "before", request.before());
  Result<v1::DumpComparison> comparison = Compare(*names);
  if (!comparison) {
    const std::string& name = request.before().empty() ? request.after() : request.before();
    return ToGrpcStatus(comparison.error(), {.resource_type = kDumpType, .resource_name = name, .field = "before"});
  }
  *response = FittingAnswer(std::move(*comparison));
  return grpc::Status::OK;
}

grpc::Status StackdService::ListStackGroups(Call& call, const v1::ListStackGroupsRequest& request,
                                            v1::ListStackGroupsResponse* response) {
  if (!v1::CrashGroup::Kind_IsValid(request.kind())) return BadField("kind", "kind must be CRASH or HANG", "BAD_KIND");
  if (grpc::Status turn = call.TakeTurn(); !turn.ok()) return turn;
  const auto kind = request.kind() == v1::CrashGroup::HANG ? v1::CrashGroup::HANG : v1::CrashGroup::CRASH;
  Result<GroupPage> page = parts_.store->ListGroups(
      {.kind = kind, .filter = request.filter(), .page_size = request.page_size(), .page_token = request.page_token()});
  if (!page) return StoreFailure(page.error(), "page_token", "", kGroupType);
  response->set_next_page_token(page->next_page_token);
  for (v1::CrashGroup& group : page->groups) *response->add_stack_groups() = std::move(group);
  return grpc::Status::OK;
}

grpc::Status StackdService::GetStackGroup(Call&, const v1::GetStackGroupRequest& request, v1::CrashGroup* response) {
  Result<v1::CrashGroup> group = parts_.store->GetGroup(request.name());
  if (!group) return StoreFailure(group.error(), "name", request.name(), kGroupType);
  *response = std::move(*group);
  return grpc::Status::OK;
}

grpc::Status StackdService::GetDaemon(Call&, const v1::GetDaemonRequest&, v1::Daemon* response) {
  response->set_version(kVersion);
  response->set_abi_version(STACKD_ABI_VERSION);
  response->set_pid(getpid());
  response->mutable_start_time()->set_seconds(start_wall_ns_ / kNsPerSecond);
  response->mutable_start_time()->set_nanos(static_cast<int32_t>(start_wall_ns_ % kNsPerSecond));
  response->set_dir(ToValidUtf8(parts_.dir));
  response->set_store(ToValidUtf8(parts_.store_file));
  response->set_process_count(static_cast<int32_t>(parts_.collector->Processes().size()));
  response->set_dump_count(parts_.store->dump_count());
  response->set_store_bytes(parts_.store->bytes());
  auto& counters = *response->mutable_counters();
  for (const auto& [name, count] : parts_.collector->Counters()) counters[name] = count;
  for (const auto& [name, count] : parts_.pipeline->Counters()) counters[name] = count;
  if (parts_.more_counters) {
    for (const auto& [name, count] : parts_.more_counters()) counters[name] = count;
  }
  counters["symbolizer_restarts"] = parts_.symbolizer->worker_restarts();
  counters["store_evicted"] = parts_.store->evicted_count();
  counters["store_crashes_dropped"] = parts_.store->dropped_count();
  for (const auto& problems : {parts_.collector->Problems(), parts_.store->Problems()}) {
    for (const std::string& problem : problems) response->add_problems(ToValidUtf8(problem));
  }
  if (std::string stuck = DaemonLoops().Stuck(/*that_hold_up_all=*/false); !stuck.empty()) {
    response->add_problems(std::move(stuck));
  }
  response->mutable_resource_attributes()->insert(parts_.resource_attributes.begin(), parts_.resource_attributes.end());
  return grpc::Status::OK;
}

}  // namespace stackd

// The service over its Unix socket, with real gRPC, store and export, and fake stages in front.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "daemon/access/caller_limits.h"
#include "daemon/base/clock.h"
#include "daemon/serve/server.h"
#include "daemon/testing/fake_stages.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "stackd/v1/stackd.grpc.pb.h"

namespace stackd {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

template <typename Detail>
Detail DetailOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  Detail detail;
  for (const auto& any : details.details()) {
    if (any.Is<Detail>()) any.UnpackTo(&detail);
  }
  return detail;
}

std::string ReasonOf(const grpc::Status& status) {
  auto info = DetailOf<google::rpc::ErrorInfo>(status);
  EXPECT_EQ(info.domain(), "stackd");
  return info.reason();
}

std::atomic<int64_t> g_loops_ns = kNsPerSecond;

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    ResetFakes();
    char dir[] = "/tmp/stackd_service_XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
    store_ = std::move(*DumpStore::Open({.file = ":memory:"}));
    pipeline_ = std::make_unique<Pipeline>(collector_.get(), &symbolizer_, store_.get());
    auto server = Server::Start(Parts(), {.address = "127.0.0.1:0"});
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
    channel_ = grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials());
    stub_ = v1::Stackd::NewStub(channel_);
    Processes({FakeProcess(7, "fake")});
    CaptureIs({{kFakeBias + 0x20, kFakeBias + 0x31}, {kFakeBias + 0x20, kFakeBias + 0x31}, {}});
  }

  void TearDown() override {
    stub_.reset();
    channel_.reset();
    server_.reset();
    std::filesystem::remove_all(dir_);
  }

  ServedParts Parts() {
    return {.collector = collector_.get(),
            .pipeline = pipeline_.get(),
            .store = store_.get(),
            .symbolizer = &symbolizer_,
            .dir = dir_,
            .store_file = ":memory:",
            .watch_queue_limit = 20,
            .process_health = &process_health_,
            .loops = &loops_};
  }

  void Processes(std::vector<ProcessDescription> processes) {
    std::lock_guard lock(Fakes().mutex);
    Fakes().processes = std::move(processes);
  }

  void CaptureIs(const std::vector<std::vector<uint64_t>>& stacks) {
    std::lock_guard lock(Fakes().mutex);
    Fakes().capture = [stacks](const CaptureRequest&) { return FakeCapture(7, stacks); };
  }

  v1::Dump Create(v1::DumpView view = v1::DUMP_VIEW_UNSPECIFIED, const std::string& request_id = "") {
    v1::CreateDumpRequest request;
    request.set_view(view);
    request.set_request_id(request_id);
    v1::Dump dump;
    grpc::ClientContext context;
    grpc::Status status = stub_->CreateDump(&context, request, &dump);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return dump;
  }

  grpc::Status Get(const std::string& name, v1::Process* process) {
    v1::GetProcessRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    return stub_->GetProcess(&context, request, process);
  }

  std::string Export(const std::string& name, v1::ExportDumpRequest::Format format, size_t* largest_piece = nullptr) {
    std::string all;
    grpc::Status status = TryExport(name, format, &all, largest_piece);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return all;
  }

  grpc::Status TryExport(const std::string& name, v1::ExportDumpRequest::Format format, std::string* all,
                         size_t* largest_piece = nullptr) {
    v1::ExportDumpRequest request;
    request.set_name(name);
    request.set_format(format);
    grpc::ClientContext context;
    auto reader = stub_->ExportDump(&context, request);
    v1::ExportDumpResponse piece;
    while (reader->Read(&piece)) {
      *all += piece.data();
      if (largest_piece != nullptr) *largest_piece = std::max(*largest_piece, piece.data().size());
    }
    return reader->Finish();
  }

  std::string dir_;
  std::unique_ptr<Collector> collector_ = FakeCollector();
  Symbolizer symbolizer_{{}};
  std::unique_ptr<DumpStore> store_;
  std::unique_ptr<Pipeline> pipeline_;
  LoopWatch loops_{[] { return g_loops_ns.load(); }};
  ProcessHealth process_health_{[this] { return collector_->Processes(); }};
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Stackd::Stub> stub_;
};

TEST_F(ServiceTest, ListsProcessesNewestFirstPageByPage) {
  std::vector<ProcessDescription> processes;
  for (int pid = 1; pid <= 25; ++pid) processes.push_back(FakeProcess(pid, "p" + std::to_string(pid)));
  Processes(processes);
  v1::ListProcessesRequest request;
  request.set_page_size(10);
  std::vector<int> pids;
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListProcessesResponse page;
    ASSERT_TRUE(stub_->ListProcesses(&context, request, &page).ok());
    for (const v1::Process& process : page.processes()) pids.push_back(process.pid());
    request.set_page_token(page.next_page_token());
    // A process that comes between two pages shifts nothing.
    processes.push_back(FakeProcess(100 + pages, "late"));
    Processes(processes);
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, 3);
  ASSERT_EQ(pids.size(), 25u);
  for (int i = 0; i < 25; ++i) EXPECT_EQ(pids[static_cast<size_t>(i)], 25 - i);
}

TEST_F(ServiceTest, FiltersProcessesByAPartOfTheirNames) {
  Processes({FakeProcess(1, "checkout"), FakeProcess(2, "worker")});
  v1::ListProcessesRequest request;
  request.set_filter("eck");
  grpc::ClientContext context;
  v1::ListProcessesResponse page;
  ASSERT_TRUE(stub_->ListProcesses(&context, request, &page).ok());
  ASSERT_EQ(page.processes_size(), 1);
  EXPECT_EQ(page.processes(0).display_name(), "checkout");
}

TEST_F(ServiceTest, NamesTheFieldThatIsWrong) {
  v1::ListProcessesRequest request;
  request.set_page_size(-1);
  v1::ListProcessesResponse page;
  grpc::ClientContext first;
  grpc::Status status = stub_->ListProcesses(&first, request, &page);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "BAD_PAGE_SIZE");
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(), "page_size");

  request.set_page_size(0);
  request.set_page_token("nonsense");
  grpc::ClientContext second;
  status = stub_->ListProcesses(&second, request, &page);
  EXPECT_EQ(ReasonOf(status), "BAD_PAGE_TOKEN");
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(), "page_token");
}

TEST_F(ServiceTest, ListsAProcessWhoseNameIsNotUtf8) {
  Processes({FakeProcess(1, "\xff\xfe")});
  v1::Process process;
  grpc::Status status = Get("", &process);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServiceTest, FindsTheOnlyProcessOrSaysWhichThereAre) {
  v1::Process process;
  EXPECT_TRUE(Get("", &process).ok());
  EXPECT_EQ(process.name(), "processes/7-100");

  Processes({FakeProcess(7, "worker"), FakeProcess(8, "worker")});
  grpc::Status status = Get("worker", &process);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(status), "PROCESS_AMBIGUOUS");
  EXPECT_EQ(DetailOf<google::rpc::ErrorInfo>(status).metadata().at("candidates"), "processes/7-100,processes/8-100");

  Processes({});
  status = Get("", &process);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(status), "NO_PROCESS");
}

TEST_F(ServiceTest, SuggestsANearNameForOneThatIsNotThere) {
  v1::Process process;
  grpc::Status status = Get("fakee", &process);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ReasonOf(status), "PROCESS_NOT_FOUND");
  EXPECT_THAT(status.error_message(), HasSubstr("did you mean fake?"));
  auto resource = DetailOf<google::rpc::ResourceInfo>(status);
  EXPECT_EQ(resource.resource_type(), "stackd.v1.Process");
  EXPECT_EQ(resource.resource_name(), "fakee");
}

TEST_F(ServiceTest, SaysThatAProcessHasExitedIfItLeftADump) {
  Create();
  Processes({FakeProcess(9, "other")});
  v1::Process process;
  EXPECT_EQ(ReasonOf(Get("processes/7-100", &process)), "PROCESS_EXITED");
  EXPECT_EQ(ReasonOf(Get("processes/7-101", &process)), "PROCESS_NOT_FOUND");
}

TEST_F(ServiceTest, AnswersADumpInEachView) {
  v1::Dump full = Create();
  EXPECT_EQ(full.threads_size(), 3);
  EXPECT_EQ(full.groups_size(), 1);
  EXPECT_EQ(full.groups(0).thread_count(), 2);
  EXPECT_EQ(full.lines_size(), 0);
  EXPECT_TRUE(full.stored());
  v1::Dump basic = Create(v1::DUMP_VIEW_BASIC);
  EXPECT_EQ(basic.threads_size() + basic.groups_size() + basic.stacks_size(), 0);
  EXPECT_EQ(basic.thread_counts().listed(), 3);
  v1::Dump text = Create(v1::DUMP_VIEW_TEXT);
  EXPECT_THAT(text.lines(), Contains(HasSubstr("f20")));
}

TEST_F(ServiceTest, GetsTheNewestDumpForNoName) {
  Create();
  v1::Dump second = Create();
  v1::Dump got;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->GetDump(&context, v1::GetDumpRequest(), &got).ok());
  EXPECT_EQ(got.SerializeAsString(), second.SerializeAsString());
}

TEST_F(ServiceTest, SaysWhichDumpIsNotThere) {
  v1::GetDumpRequest request;
  request.set_name("processes/7-100/dumps/20261121T031415926Z-1");
  v1::Dump dump;
  grpc::ClientContext context;
  grpc::Status status = stub_->GetDump(&context, request, &dump);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ReasonOf(status), "DUMP_NOT_FOUND");
  EXPECT_EQ(DetailOf<google::rpc::ResourceInfo>(status).resource_name(), request.name());

  request.set_name("what is this");
  grpc::ClientContext second;
  status = stub_->GetDump(&second, request, &dump);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "BAD_NAME");
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(), "name");
}

TEST_F(ServiceTest, DeletesADump) {
  v1::DeleteDumpRequest request;
  request.set_name(Create().name());
  google::protobuf::Empty empty;
  grpc::ClientContext first, second;
  EXPECT_TRUE(stub_->DeleteDump(&first, request, &empty).ok());
  EXPECT_EQ(ReasonOf(stub_->DeleteDump(&second, request, &empty)), "DUMP_NOT_FOUND");
}

TEST_F(ServiceTest, ListsDumpsPageByPage) {
  for (int i = 0; i < 5; ++i) Create();
  v1::ListDumpsRequest request;
  request.set_page_size(2);
  std::set<std::string> names;
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListDumpsResponse page;
    ASSERT_TRUE(stub_->ListDumps(&context, request, &page).ok());
    for (const v1::Dump& dump : page.dumps()) {
      names.insert(dump.name());
      EXPECT_EQ(dump.threads_size(), 0);
    }
    request.set_page_token(page.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(names.size(), 5u);
  EXPECT_GE(pages, 3);
}

// A crash of the group `fingerprint`, as the stages in front of the store make it.
v1::Dump CrashNumber(int number, const std::string& fingerprint) {
  v1::Dump dump;
  dump.set_name("processes/7-100/dumps/crash-" + std::to_string(number));
  dump.mutable_process()->set_display_name("fake");
  dump.set_trigger(v1::Dump::CRASH);
  dump.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond);
  dump.mutable_crash()->set_id(std::to_string(number));
  dump.mutable_crash()->set_explanation("null dereference in load");
  dump.mutable_crash()->set_fingerprint(fingerprint);
  dump.mutable_crash()->add_fingerprint_frames()->set_function("load");
  dump.mutable_crash()->mutable_fingerprint_frames(0)->set_used(true);
  return dump;
}

TEST_F(ServiceTest, ListsGroupsOfEqualCrashesPageByPage) {
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(store_->Put(CrashNumber(i, "f" + std::to_string(i % 3))));
  v1::ListStackGroupsRequest request;
  request.set_page_size(2);
  std::vector<std::string> names;
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListStackGroupsResponse page;
    ASSERT_TRUE(stub_->ListStackGroups(&context, request, &page).ok());
    for (const v1::CrashGroup& group : page.stack_groups()) {
      names.push_back(group.name());
      EXPECT_EQ(group.crash_count(), 2);
      EXPECT_EQ(group.top_function(), "load");
      EXPECT_EQ(group.dumps_size(), 2);
    }
    request.set_page_token(page.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, 2);
  EXPECT_THAT(names, ElementsAre("stackGroups/f2", "stackGroups/f1", "stackGroups/f0"));

  request.set_page_token("nonsense");
  v1::ListStackGroupsResponse page;
  grpc::ClientContext context;
  grpc::Status status = stub_->ListStackGroups(&context, request, &page);
  EXPECT_EQ(ReasonOf(status), "BAD_PAGE_TOKEN");
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(), "page_token");
}

TEST_F(ServiceTest, ListsGroupsOfNoUnknownKind) {
  grpc::ClientContext context;
  v1::ListStackGroupsRequest request;
  request.set_kind(static_cast<v1::CrashGroup::Kind>(9));
  v1::ListStackGroupsResponse page;
  const grpc::Status status = stub_->ListStackGroups(&context, request, &page);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "BAD_KIND");
}

TEST_F(ServiceTest, GetsAGroupByNameOrThatOfTheNewestCrash) {
  ASSERT_TRUE(store_->Put(CrashNumber(1, "f1")));
  ASSERT_TRUE(store_->Put(CrashNumber(2, "f2")));
  ASSERT_TRUE(store_->Put(CrashNumber(3, "f1")));
  const auto get = [&](const std::string& name, v1::CrashGroup* group) {
    v1::GetStackGroupRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    return stub_->GetStackGroup(&context, request, group);
  };
  v1::CrashGroup group;
  ASSERT_TRUE(get("", &group).ok());
  EXPECT_EQ(group.name(), "stackGroups/f1");
  EXPECT_EQ(group.fingerprint_frames_size(), 1);
  ASSERT_TRUE(get("stackGroups/f2", &group).ok());
  EXPECT_EQ(group.crash_count(), 1);

  grpc::Status status = get("stackGroups/f3", &group);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ReasonOf(status), "GROUP_NOT_FOUND");
  EXPECT_EQ(DetailOf<google::rpc::ResourceInfo>(status).resource_type(), "stackd.v1.CrashGroup");
  EXPECT_EQ(ReasonOf(get("what is this", &group)), "BAD_NAME");
}

TEST_F(ServiceTest, NamesADumpAnew) {
  const v1::Dump made = Create();
  v1::ResymbolizeDumpRequest request;
  v1::Dump anew;
  grpc::ClientContext first;
  grpc::Status status = stub_->ResymbolizeDump(&first, request, &anew);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(anew.name(), made.name());
  EXPECT_THAT(anew.notes(), Contains(HasSubstr("named anew at")));

  v1::Dump without_raw = CrashNumber(1, "f1");
  ASSERT_TRUE(store_->Put(without_raw));
  request.set_name(without_raw.name());
  grpc::ClientContext second;
  status = stub_->ResymbolizeDump(&second, request, &anew);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(status), "RAW_CAPTURE_GONE");

  request.set_name("processes/7-100/dumps/none");
  grpc::ClientContext third;
  EXPECT_EQ(ReasonOf(stub_->ResymbolizeDump(&third, request, &anew)), "DUMP_NOT_FOUND");
}

TEST_F(ServiceTest, ComparesDumps) {
  const auto compare = [&](const std::string& before, const std::string& after, v1::DumpComparison* comparison) {
    v1::CompareDumpsRequest request;
    request.set_before(before);
    request.set_after(after);
    grpc::ClientContext context;
    return stub_->CompareDumps(&context, request, comparison);
  };
  v1::DumpComparison comparison;
  EXPECT_EQ(ReasonOf(compare("", "", &comparison)), "DUMP_NOT_FOUND");
  const std::string first = Create().name();
  CaptureIs({{kFakeBias + 0x40, kFakeBias + 0x31}, {kFakeBias + 0x20, kFakeBias + 0x31}, {}});
  Create();
  CaptureIs({{kFakeBias + 0x20, kFakeBias + 0x31}, {kFakeBias + 0x20, kFakeBias + 0x31}, {}});
  const std::string last = Create().name();

  grpc::Status status = compare(first, last, &comparison);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(comparison.before(), first);
  EXPECT_EQ(comparison.after(), last);
  ASSERT_EQ(comparison.threads_size(), 3);
  EXPECT_EQ(comparison.threads(0).tid(), 7);
  EXPECT_EQ(comparison.threads(0).change(), v1::DumpComparison::MOVED) << "it was elsewhere in the dump between";
  EXPECT_THAT(comparison.lines(), Contains(HasSubstr("3 dumps compared")));
  ASSERT_TRUE(compare("", "", &comparison).ok());
  EXPECT_EQ(comparison.after(), last);

  EXPECT_EQ(ReasonOf(compare(first, first, &comparison)), "BAD_NAME");
  EXPECT_EQ(ReasonOf(compare("nonsense", last, &comparison)), "BAD_NAME");
  EXPECT_EQ(ReasonOf(compare(first, "processes/7-100/dumps/none", &comparison)), "DUMP_NOT_FOUND");
  v1::Dump other;
  other.set_name("processes/8-100/dumps/d1");
  other.mutable_process()->set_name("processes/8-100");
  other.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond);
  ASSERT_TRUE(store_->Put(other));
  status = compare(first, other.name(), &comparison);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(status), "DIFFERENT_PROCESSES");
}

TEST_F(ServiceTest, ListsDumpsWithOneTrigger) {
  Create();
  ASSERT_TRUE(store_->Put(CrashNumber(1, "f1")));
  v1::ListDumpsRequest request;
  request.set_trigger(v1::Dump::CRASH);
  v1::ListDumpsResponse page;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->ListDumps(&context, request, &page).ok());
  ASSERT_EQ(page.dumps_size(), 1);
  EXPECT_EQ(page.dumps(0).crash().explanation(), "null dereference in load");

  request.set_trigger(static_cast<v1::Dump::Trigger>(99));
  grpc::ClientContext second;
  grpc::Status status = stub_->ListDumps(&second, request, &page);
  EXPECT_EQ(ReasonOf(status), "BAD_FILTER");
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(), "trigger");
}

TEST_F(ServiceTest, AnswersPartialWithinAShortDeadline) {
  Fakes().capture = [](const CaptureRequest& request) {
    // One thread does not answer.
    while (MonotonicNs() < request.deadline_ns) std::this_thread::yield();
    auto capture = FakeCapture(7, {{kFakeBias + 0x20}, {}});
    capture->threads[1].status = ThreadStatus::kTimedOut;
    capture->partial = true;
    return capture;
  };
  v1::Dump dump;
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + milliseconds(500));
  grpc::Status status = stub_->CreateDump(&context, v1::CreateDumpRequest(), &dump);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(dump.state(), v1::Dump::PARTIAL);
  EXPECT_EQ(dump.thread_counts().timed_out(), 1);
}

TEST_F(ServiceTest, GivesEachDumpFiveSecondsAtMost) {
  std::atomic<int64_t> left_ns = 0;
  Fakes().capture = [&](const CaptureRequest& request) {
    left_ns = request.deadline_ns - MonotonicNs();
    return FakeCapture(7, {{kFakeBias}});
  };
  Create();
  EXPECT_LE(left_ns, 5 * kNsPerSecond);
  EXPECT_GT(left_ns, 4 * kNsPerSecond);
}

TEST_F(ServiceTest, InterruptsNoMoreThanIsAskedFor) {
  std::atomic<Quiet> quiet = Quiet::kNever;
  Fakes().capture = [&](const CaptureRequest& request) {
    quiet = request.quiet;
    return FakeCapture(7, {{kFakeBias}});
  };
  const auto create = [&](v1::Quiet asked) {
    v1::CreateDumpRequest request;
    request.set_quiet(asked);
    v1::Dump dump;
    grpc::ClientContext context;
    return stub_->CreateDump(&context, request, &dump);
  };
  EXPECT_TRUE(create(v1::QUIET_UNSPECIFIED).ok());
  EXPECT_EQ(quiet, Quiet::kPrefer);
  EXPECT_TRUE(create(v1::ONLY).ok());
  EXPECT_EQ(quiet, Quiet::kOnly);
  EXPECT_TRUE(create(v1::NEVER).ok());
  EXPECT_EQ(quiet, Quiet::kNever);
  EXPECT_TRUE(create(v1::PREFER).ok());
  EXPECT_EQ(quiet, Quiet::kPrefer);
  EXPECT_EQ(create(static_cast<v1::Quiet>(9)).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, AnUnstoredDumpHasNoNameAndInterruptsNothing) {
  std::atomic<Quiet> quiet = Quiet::kNever;
  Fakes().capture = [&](const CaptureRequest& request) {
    quiet = request.quiet;
    return FakeCapture(7, {{kFakeBias}});
  };
  v1::CreateDumpRequest request;
  request.set_unstored(true);
  v1::Dump dump;
  const auto create = [&] {
    grpc::ClientContext context;
    return stub_->CreateDump(&context, request, &dump);
  };
  EXPECT_TRUE(create().ok());
  EXPECT_EQ(quiet, Quiet::kOnly);
  EXPECT_EQ(dump.name(), "");
  EXPECT_EQ(dump.groups_size(), 1);
  grpc::ClientContext context;
  EXPECT_EQ(stub_->GetDump(&context, v1::GetDumpRequest(), &dump).error_code(), grpc::StatusCode::NOT_FOUND);
  request.set_quiet(v1::NEVER);
  EXPECT_EQ(create().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_quiet(v1::ONLY);
  request.set_request_id("once");
  EXPECT_EQ(create().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, CopiesAsMuchOfAStackAsIsAskedForAndAllowed) {
  std::atomic<uint32_t> bytes = 0;
  Fakes().capture = [&](const CaptureRequest& request) {
    bytes = request.max_stack_bytes;
    return FakeCapture(7, {{kFakeBias}});
  };
  auto create = [&](int max_stack_bytes) {
    v1::CreateDumpRequest request;
    request.set_max_stack_bytes(max_stack_bytes);
    v1::Dump dump;
    grpc::ClientContext context;
    return stub_->CreateDump(&context, request, &dump);
  };
  EXPECT_TRUE(create(0).ok());
  EXPECT_EQ(bytes, 262144u);
  EXPECT_TRUE(create(4096).ok());
  EXPECT_EQ(bytes, 4096u);
  EXPECT_TRUE(create(1 << 30).ok());
  EXPECT_EQ(bytes, 262144u);
  EXPECT_EQ(create(-1).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, MakesOneDumpForOneRequestId) {
  v1::Dump first = Create(v1::DUMP_VIEW_FULL, "id-1");
  v1::Dump again = Create(v1::DUMP_VIEW_FULL, "id-1");
  EXPECT_EQ(first.SerializeAsString(), again.SerializeAsString());
  EXPECT_EQ(Fakes().captures, 1);
  EXPECT_NE(Create(v1::DUMP_VIEW_FULL, "id-2").name(), first.name());
}

TEST_F(ServiceTest, KeepsAnAnswerOfTenThousandThreadsBelowFourMebibytesAndExportsAll) {
  std::vector<std::vector<uint64_t>> stacks;
  for (uint64_t i = 0; i < 10'000; ++i) {
    std::vector<uint64_t> stack{kFakeBias + 16 * i};
    for (uint64_t j = 0; j < 20; ++j) stack.push_back(kFakeBias + 64 * j + 1);
    stacks.push_back(stack);
  }
  CaptureIs(stacks);
  v1::Dump dump = Create();  // fails above 4 MiB: the client's limit is the default
  EXPECT_LT(dump.ByteSizeLong(), 4u << 20);
  EXPECT_GT(dump.omitted_group_count(), 0);
  EXPECT_EQ(dump.thread_counts().captured(), 10'000);
  size_t largest_piece = 0;
  std::string folded = Export(dump.name(), v1::ExportDumpRequest::FOLDED, &largest_piece);
  EXPECT_EQ(largest_piece, 64u << 10);
  EXPECT_EQ(std::count(folded.begin(), folded.end(), '\n'), 10'000);
}

TEST_F(ServiceTest, ExportsEachFormat) {
  std::string name = Create().name();
  EXPECT_THAT(Export(name, v1::ExportDumpRequest::FORMAT_UNSPECIFIED), HasSubstr("f20"));
  EXPECT_THAT(Export("", v1::ExportDumpRequest::TEXT_BY_THREAD), HasSubstr("f20"));
  EXPECT_THAT(Export(name, v1::ExportDumpRequest::FOLDED), HasSubstr("f30;f20 2\n"));
  EXPECT_THAT(Export("", v1::ExportDumpRequest::MINIDUMP), StartsWith("MDMP"));
}

TEST_F(ServiceTest, SaysThatADumpWithoutRegistersAndStacksCannotBecomeAMinidump) {
  v1::Dump dump = Create();
  dump.set_name("processes/7-100/dumps/20261121T031415926Z-1");
  ASSERT_TRUE(store_->Put(dump).has_value());
  std::string all;
  grpc::Status status = TryExport(dump.name(), v1::ExportDumpRequest::MINIDUMP, &all);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReasonOf(status), "RAW_CAPTURE_GONE");
  EXPECT_EQ(all, "");
  status = TryExport("processes/7-100/dumps/20261121T031415926Z-2", v1::ExportDumpRequest::MINIDUMP, &all);
  EXPECT_EQ(ReasonOf(status), "DUMP_NOT_FOUND");
}

TEST_F(ServiceTest, LetsAReaderLeaveAnExport) {
  std::vector<std::vector<uint64_t>> stacks;
  for (uint64_t i = 0; i < 5000; ++i) stacks.push_back({kFakeBias + 16 * i, kFakeBias + 1});
  CaptureIs(stacks);
  v1::ExportDumpRequest request;
  request.set_name(Create(v1::DUMP_VIEW_BASIC).name());
  request.set_format(v1::ExportDumpRequest::JSON);
  {
    grpc::ClientContext context;
    auto reader = stub_->ExportDump(&context, request);
    v1::ExportDumpResponse piece;
    ASSERT_TRUE(reader->Read(&piece));
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // Drain would wait for a call that goes on.
  int64_t start_ns = MonotonicNs();
  server_->Drain(10 * kNsPerSecond);
  EXPECT_LT(MonotonicNs() - start_ns, 5 * kNsPerSecond);
}

TEST_F(ServiceTest, ExportsADumpThatTheStoreDidNotTake) {
  Fakes().capture = [](const CaptureRequest&) {
    auto capture = FakeCapture(7, {{kFakeBias + 0x20}});
    capture->process.id = "../7";
    return capture;
  };
  v1::Dump dump = Create();
  EXPECT_FALSE(dump.stored());
  EXPECT_THAT(Export(dump.name(), v1::ExportDumpRequest::TEXT), HasSubstr("f20"));
}

TEST_F(ServiceTest, RefusesAnOversizedRequest) {
  v1::GetProcessRequest request;
  request.set_name(std::string(2 << 20, 'x'));
  v1::Process process;
  grpc::ClientContext context;
  EXPECT_EQ(stub_->GetProcess(&context, request, &process).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServiceTest, WatchesDumpsAsTheyAreStored) {
  grpc::ClientContext context;
  auto reader = stub_->WatchDumps(&context, v1::WatchDumpsRequest());
  reader->WaitForInitialMetadata();
  v1::Dump made = Create();
  v1::WatchDumpsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.dump().name(), made.name());
  EXPECT_EQ(response.dump().threads_size(), 0);
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ServiceTest, WatchesFromADumpOn) {
  v1::Dump first = Create(), second = Create(), third = Create();
  v1::WatchDumpsRequest request;
  request.set_parent("processes/7-100");
  request.set_after(first.name());
  grpc::ClientContext context;
  auto reader = stub_->WatchDumps(&context, request);
  reader->WaitForInitialMetadata();
  v1::Dump fourth = Create();
  std::vector<std::string> seen;
  v1::WatchDumpsResponse response;
  for (int i = 0; i < 3 && reader->Read(&response); ++i) seen.push_back(response.dump().name());
  EXPECT_THAT(seen, ElementsAre(second.name(), third.name(), fourth.name()));
  context.TryCancel();
}

TEST_F(ServiceTest, WatchesFromADumpThatIsGone) {
  v1::Dump first = Create(), second = Create();
  ASSERT_TRUE(store_->Delete(first.name()).has_value());
  v1::WatchDumpsRequest request;
  request.set_after(first.name());
  grpc::ClientContext context;
  auto reader = stub_->WatchDumps(&context, request);
  v1::WatchDumpsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.dump().name(), second.name());
  context.TryCancel();
}

TEST_F(ServiceTest, DoesNotWatchOtherProcesses) {
  v1::WatchDumpsRequest request;
  request.set_parent("processes/8-100");
  grpc::ClientContext context;
  auto reader = stub_->WatchDumps(&context, request);
  reader->WaitForInitialMetadata();
  Create();
  server_->Drain(kNsPerSecond);
  v1::WatchDumpsResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServiceTest, TellsASlowWatcherFromWhereToGoOn) {
  Fakes().capture = [](const CaptureRequest&) {
    auto capture = FakeCapture(7, {{kFakeBias}});
    capture->notes.push_back(std::string(20'000, 'n'));
    return capture;
  };
  // A reader that takes in little more than what it was asked to read.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
  auto stub = v1::Stackd::NewStub(
      grpc::CreateCustomChannel(server_->addresses()[0], grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + std::chrono::seconds(60));
  auto reader = stub->WatchDumps(&context, v1::WatchDumpsRequest());
  reader->WaitForInitialMetadata();
  // Its window takes a few; the queue of 20 takes some more.
  std::vector<std::string> made;
  for (int i = 0; i < 200; ++i) made.push_back(Create(v1::DUMP_VIEW_BASIC).name());
  v1::WatchDumpsResponse response;
  std::vector<std::string> seen;
  while (reader->Read(&response)) seen.push_back(response.dump().name());
  grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(status), "WATCH_TOO_SLOW");
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(DetailOf<google::rpc::ErrorInfo>(status).metadata().at("after"), seen.back());
  ASSERT_LT(seen.size(), made.size());
  made.resize(seen.size());
  EXPECT_EQ(seen, made);
}

TEST_F(ServiceTest, RefusesToWatchWhatIsNoName) {
  v1::WatchDumpsRequest request;
  request.set_after("yesterday");
  grpc::ClientContext context;
  auto reader = stub_->WatchDumps(&context, request);
  v1::WatchDumpsResponse response;
  EXPECT_FALSE(reader->Read(&response));
  grpc::Status status = reader->Finish();
  EXPECT_EQ(ReasonOf(status), "BAD_NAME");
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(), "after");
}

TEST_F(ServiceTest, DescribesTheDaemon) {
  Create();
  v1::Daemon daemon;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->GetDaemon(&context, v1::GetDaemonRequest(), &daemon).ok());
  EXPECT_EQ(daemon.abi_version(), 1u);
  EXPECT_EQ(daemon.dir(), dir_);
  EXPECT_EQ(daemon.process_count(), 1);
  EXPECT_EQ(daemon.dump_count(), 1);
  EXPECT_EQ(daemon.counters().at("ring_records"), 7);
  EXPECT_EQ(daemon.counters().at("dumps_request"), 1);
}

TEST_F(ServiceTest, IsHealthyUntilItDrains) {
  auto health = grpc::health::v1::Health::NewStub(channel_);
  grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
  for (const char* service : {"", "liveness", "readiness", "stackd.v1.Stackd"}) {
    request.set_service(service);
    grpc::ClientContext context;
    ASSERT_TRUE(health->Check(&context, request, &response).ok()) << service;
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  }
  request.set_service("unknown");
  grpc::ClientContext unknown;
  EXPECT_EQ(health->Check(&unknown, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);

  request.set_service("readiness");
  grpc::ClientContext context;
  auto reader = health->Watch(&context, request);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  server_->Drain(kNsPerSecond);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(reader->Read(&response));
}

TEST_F(ServiceTest, IsAliveWhileItDrains) {
  auto health = grpc::health::v1::Health::NewStub(channel_);
  grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
  request.set_service("liveness");
  grpc::ClientContext context;
  auto reader = health->Watch(&context, request);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  server_->Drain(kNsPerSecond);
  EXPECT_FALSE(reader->Read(&response)) << response.DebugString();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServiceTest, IsNotAliveWhileALoopIsStuck) {
  auto health = grpc::health::v1::Health::NewStub(channel_);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("liveness");
  grpc::ClientContext context;
  auto reader = health->Watch(&context, request);
  const auto next = [&] {
    grpc::health::v1::HealthCheckResponse response;
    return reader->Read(&response) ? response.status() : grpc::health::v1::HealthCheckResponse::UNKNOWN;
  };
  EXPECT_EQ(next(), grpc::health::v1::HealthCheckResponse::SERVING);
  {
    const LoopWatch::Turn turn(&loops_, Loop::kStore);
    g_loops_ns += LoopWatch::kStuckNs;
    EXPECT_EQ(next(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
    grpc::ClientContext asking;
    grpc::health::v1::HealthCheckResponse response;
    ASSERT_TRUE(health->Check(&asking, request, &response).ok());
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  }
  EXPECT_EQ(next(), grpc::health::v1::HealthCheckResponse::SERVING);
  context.TryCancel();
}

TEST_F(ServiceTest, TellsItsHealthOneCallerOnlySoOften) {
  auto health = grpc::health::v1::Health::NewStub(channel_);
  const auto check = [](auto& stub) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    return stub.Check(&context, grpc::health::v1::HealthCheckRequest(), &response);
  };
  grpc::Status status;
  for (int i = 0; i < 20'000 && status.ok(); ++i) status = check(*health);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(status), "CALL_RATE_LIMITED");
  auto other =
      grpc::health::v1::Health::NewStub(grpc::CreateChannel(server_->addresses()[1], grpc::InsecureChannelCredentials()));
  EXPECT_TRUE(check(*other).ok());
}

TEST_F(ServiceTest, LetsOneCallerWatchItsHealthOnlySoManyTimes) {
  auto health = grpc::health::v1::Health::NewStub(channel_);
  grpc::health::v1::HealthCheckResponse response;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  const auto watch = [&](auto& stub) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    contexts.back()->set_deadline(system_clock::now() + std::chrono::seconds(10));
    return stub.Watch(contexts.back().get(), grpc::health::v1::HealthCheckRequest());
  };
  std::vector<decltype(watch(*health))> watches;
  for (int i = 0; i < CallerLimits::kMaxStreams; ++i) {
    watches.push_back(watch(*health));
    ASSERT_TRUE(watches.back()->Read(&response));
  }
  EXPECT_EQ(ReasonOf(watch(*health)->Finish()), "TOO_MANY_CALLS");
  auto other =
      grpc::health::v1::Health::NewStub(grpc::CreateChannel(server_->addresses()[1], grpc::InsecureChannelCredentials()));
  EXPECT_TRUE(watch(*other)->Read(&response));
  // Until one ends.
  contexts[0]->TryCancel();
  const int64_t begin_ns = MonotonicNs();
  while (!watch(*health)->Read(&response)) ASSERT_LT(MonotonicNs() - begin_ns, 10 * kNsPerSecond);
}

TEST_F(ServiceTest, TellsWhetherTheProcessesOfANameAreWell) {
  using grpc::health::v1::HealthCheckResponse;
  Processes({FakeProcess(7, "fake"), FakeProcess(8, "fake"), FakeProcess(9, "other")});
  auto health = grpc::health::v1::Health::NewStub(channel_);
  grpc::health::v1::HealthCheckRequest request;
  const auto check = [&](const std::string& name) {
    grpc::ClientContext context;
    HealthCheckResponse response;
    request.set_service("process/" + name);
    const grpc::Status status = health->Check(&context, request, &response);
    return status.ok() ? HealthCheckResponse::ServingStatus_Name(response.status()) : std::to_string(status.error_code());
  };
  EXPECT_EQ(check("fake"), "SERVING");
  EXPECT_EQ(check("nobody"), std::to_string(grpc::StatusCode::NOT_FOUND));

  grpc::ClientContext context, context_of_nobody;
  request.set_service("process/fake");
  auto reader = health->Watch(&context, request);
  request.set_service("process/nobody");
  auto reader_of_nobody = health->Watch(&context_of_nobody, request);
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  ASSERT_TRUE(reader_of_nobody->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);

  auto suspicion = std::make_shared<Suspicion>();
  suspicion->process_id = FakeProcess(8, "fake").id;
  process_health_.SetIll(suspicion);
  EXPECT_EQ(check("fake"), "NOT_SERVING");
  EXPECT_EQ(check("other"), "SERVING");
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);

  suspicion->over = true;
  EXPECT_EQ(check("fake"), "SERVING");
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  Processes({FakeProcess(10, "nobody")});
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  ASSERT_TRUE(reader_of_nobody->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  // The daemon's end is not the process's.
  server_->Drain(kNsPerSecond);
  EXPECT_FALSE(reader_of_nobody->Read(&response));
}

TEST_F(ServiceTest, TellsWhatAProcessDoesNow) {
  Processes({FakeProcess(8, "fake")});
  const auto get = [&] {
    v1::GetProcessRequest request;
    v1::Process process;
    grpc::ClientContext context;
    EXPECT_TRUE(stub_->GetProcess(&context, request, &process).ok());
    return process;
  };
  EXPECT_EQ(get().health(), v1::Process::HEALTH_UNSPECIFIED);
  EXPECT_FALSE(get().has_cpu_time());
  Fakes().activity = {.parent_pid = 3, .cpu_time_ns = 2'500'000'000};
  EXPECT_EQ(get().parent_pid(), 3);
  EXPECT_EQ(get().cpu_time().seconds(), 2);
  EXPECT_EQ(get().cpu_time().nanos(), 500'000'000);

  auto spin = std::make_shared<Suspicion>();
  spin->process_id = FakeProcess(8, "fake").id;
  spin->hang = {.cause = HangCause::kSpin, .explanation = "thread 9 spins\xff", .duration_ns = kNsPerSecond};
  spin->seen_ns = MonotonicNs() - kNsPerSecond;
  process_health_.Note(spin);
  EXPECT_EQ(get().health(), v1::Process::SUSPICIOUS);
  ASSERT_EQ(get().hangs_size(), 1);
  EXPECT_EQ(get().hangs(0).cause(), v1::Hang::SPIN);
  EXPECT_GE(get().hangs(0).duration().seconds(), 2);

  auto deadlock = std::make_shared<Suspicion>();
  deadlock->process_id = spin->process_id;
  deadlock->hang.cause = HangCause::kDeadlock;
  deadlock->seen_ns = MonotonicNs();
  process_health_.Note(deadlock);
  EXPECT_EQ(get().health(), v1::Process::HUNG);
  spin->over = deadlock->over = true;
  EXPECT_EQ(get().hangs_size(), 0);
}

TEST_F(ServiceTest, ServesASocketForItsOwnerOnlyAndTakesItAway) {
  struct stat file;
  ASSERT_EQ(stat((dir_ + "/api.sock").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  server_.reset();
  EXPECT_NE(stat((dir_ + "/api.sock").c_str(), &file), 0);
}

TEST_F(ServiceTest, ServesTcpToo) {
  ASSERT_EQ(server_->addresses().size(), 2u);
  EXPECT_THAT(server_->addresses()[1], testing::MatchesRegex("127.0.0.1:[1-9][0-9]*"));
  auto stub = v1::Stackd::NewStub(grpc::CreateChannel(server_->addresses()[1], grpc::InsecureChannelCredentials()));
  v1::Daemon daemon;
  grpc::ClientContext context;
  EXPECT_TRUE(stub->GetDaemon(&context, v1::GetDaemonRequest(), &daemon).ok());
}

TEST_F(ServiceTest, LetsAUserConnectWhomTheRulesNameLaterThoughNobodyCalls) {
  ServedParts parts = Parts();
  parts.dir = dir_ + "/own";
  ASSERT_EQ(mkdir(parts.dir.c_str(), 0755), 0);
  const std::string rules = dir_ + "/access.yaml";
  std::ofstream(rules) << "loopback: none\n";
  auto server = Server::Start(parts, {.access_file = rules});
  ASSERT_TRUE(server.has_value()) << server.error().message;
  const auto mode = [&] { return std::filesystem::status(parts.dir + "/api.sock").permissions(); };
  ASSERT_EQ(mode(), std::filesystem::perms(0600));
  std::ofstream(rules) << "access: [{uid: 12345, role: read}]\n";
  const int64_t begin_ns = MonotonicNs();
  while (mode() != std::filesystem::perms(0666)) {
    ASSERT_LT(MonotonicNs() - begin_ns, 20 * kNsPerSecond);
    std::this_thread::sleep_for(milliseconds(10));
  }
}

TEST_F(ServiceTest, IsNotStartedTwice) {
  auto second = Server::Start(Parts(), {});
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message, HasSubstr("another stackd serves"));
  auto stub = v1::Stackd::NewStub(grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  v1::Daemon daemon;
  grpc::ClientContext context;
  EXPECT_TRUE(stub->GetDaemon(&context, v1::GetDaemonRequest(), &daemon).ok()) << "the first one goes on";
}

TEST_F(ServiceTest, DoesNotShareItsPort) {
  ServedParts parts = Parts();
  parts.dir = dir_ + "/other";
  mkdir(parts.dir.c_str(), 0700);
  auto second = Server::Start(parts, {.address = server_->addresses()[1]});
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message, HasSubstr("another program listens there"));
}

}  // namespace
}  // namespace stackd

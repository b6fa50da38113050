#include "daemon/otlp/exporter.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "opentelemetry/proto/collector/logs/v1/logs_service.grpc.pb.h"

namespace stackd {
namespace {

namespace collector = opentelemetry::proto::collector::logs::v1;

// A collector that does as a test says.
class Collector : public collector::LogsService::Service {
 public:
  grpc::Status Export(grpc::ServerContext* context, const collector::ExportLogsServiceRequest* request,
                      collector::ExportLogsServiceResponse* response) override {
    std::lock_guard lock(mutex_);
    ++calls_;
    const auto key = context->client_metadata().find("authorization");
    if (key != context->client_metadata().end()) authorization_ = {key->second.data(), key->second.size()};
    const grpc::Status status = answer_ ? answer_(calls_, response) : grpc::Status::OK;
    if (!status.ok()) return status;
    for (const auto& logs : request->resource_logs()) {
      const auto& record = logs.scope_logs(0).log_records(0);
      const bool is_dump = record.event_name() == "stackd.dump";
      bodies_.push_back(is_dump ? "dump " + record.attributes(0).value().string_value() : record.body().string_value());
    }
    return status;
  }

  std::function<grpc::Status(int call, collector::ExportLogsServiceResponse*)> answer_;
  std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::string authorization_;
  int calls_ = 0;
};

class ExporterTest : public testing::Test {
 protected:
  ~ExporterTest() override {
    exporter_.reset();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  void Listen() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port_), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&collector_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  void Start(OtlpOptions options = {}) {
    options.endpoint = "http://127.0.0.1:" + std::to_string(port_);
    options.first_pause_ns = 20 * kNsPerMs;
    options.longest_pause_ns = 100 * kNsPerMs;
    auto started = OtlpExporter::Start(std::move(options));
    ASSERT_TRUE(started) << started.error().message;
    exporter_ = std::move(*started);
  }

  static std::shared_ptr<v1::Dump> Crash(const std::string& explanation) {
    auto dump = std::make_shared<v1::Dump>();
    dump->set_name("processes/1-1/dumps/" + explanation);
    dump->mutable_crash()->set_explanation(explanation);
    return dump;
  }

  bool Await(const std::string& counter, int64_t value) {
    for (const int64_t end_ns = MonotonicNs() + 20 * kNsPerSecond; MonotonicNs() < end_ns;) {
      if (exporter_->Counters()[counter] == value) return true;
      std::this_thread::yield();
    }
    return false;
  }

  int port_ = 0;
  std::mutex holds_;  // outlives the calls that wait for it
  Collector collector_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<OtlpExporter> exporter_;
};

TEST_F(ExporterTest, CrashesArriveInOrderAndOtherDumpsAreNotSent) {
  Listen();
  Start({.headers = "authorization=Bearer%20x"});
  exporter_->Add(std::make_shared<v1::Dump>());
  for (int i = 0; i < 5; ++i) exporter_->Add(Crash(std::to_string(i)));
  EXPECT_TRUE(Await("sent", 5));
  EXPECT_EQ(collector_.bodies_, (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  EXPECT_EQ(collector_.authorization_, "Bearer x");
}

TEST_F(ExporterTest, ACollectorThatComesLaterGetsWhatWaited) {
  Listen();
  server_->Shutdown();
  server_.reset();
  Start();
  exporter_->Add(Crash("early"));
  EXPECT_EQ(exporter_->Counters()["waiting"], 1);
  Listen();
  EXPECT_TRUE(Await("sent", 1));
  EXPECT_EQ(collector_.bodies_, std::vector<std::string>{"early"});
}

TEST_F(ExporterTest, WhatMayComeAgainIsTriedAgainAndTheRestIsNot) {
  using Code = grpc::StatusCode;
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(1000);
  google::rpc::Status details;
  details.add_details()->PackFrom(retry);
  const grpc::Status later(Code::RESOURCE_EXHAUSTED, "later", details.SerializeAsString());
  const grpc::Status unavailable(Code::UNAVAILABLE, "");
  for (const grpc::Status& status : {unavailable, later, grpc::Status(Code::ABORTED, "")}) {
    collector_.answer_ = [&](int call, auto*) { return call == 1 ? status : grpc::Status::OK; };
    collector_.calls_ = 0;
    if (server_ == nullptr) Listen();
    Start();
    exporter_->Add(Crash("x"));
    EXPECT_TRUE(Await("sent", 1)) << status.error_code();
    EXPECT_EQ(collector_.calls_, 2);
  }
  for (const Code code : {Code::RESOURCE_EXHAUSTED, Code::INVALID_ARGUMENT, Code::UNAUTHENTICATED, Code::UNIMPLEMENTED}) {
    collector_.answer_ = [&](int, auto*) { return grpc::Status(code, "no"); };
    collector_.calls_ = 0;
    Start();
    exporter_->Add(Crash("x"));
    EXPECT_TRUE(Await("refused", 1)) << code;
    EXPECT_EQ(collector_.calls_, 1);
  }
}

TEST_F(ExporterTest, ThePartThatACollectorRefusesIsCounted) {
  collector_.answer_ = [](int, collector::ExportLogsServiceResponse* response) {
    response->mutable_partial_success()->set_rejected_log_records(1);
    return grpc::Status::OK;
  };
  Listen();
  Start();
  exporter_->Add(Crash("x"));
  EXPECT_TRUE(Await("refused", 1));
  EXPECT_EQ(exporter_->Counters()["sent"], 0);
}

TEST_F(ExporterTest, TheQueueIsBoundedAndAddingNeverWaits) {
  port_ = 1;  // no process listens there
  Start({.queue_limit = 10});
  const int64_t begin_ns = MonotonicNs();
  for (int i = 0; i < 1000; ++i) exporter_->Add(Crash("x"));
  EXPECT_LT(MonotonicNs() - begin_ns, 2 * kNsPerSecond);
  EXPECT_EQ(exporter_->Counters()["queue_full"], 990);
  EXPECT_EQ(exporter_->Counters()["waiting"], 10);
}

TEST_F(ExporterTest, WhatIsTriedForTooLongIsGivenUpAndCounted) {
  port_ = 1;
  Start({.give_up_ns = 200 * kNsPerMs});
  exporter_->Add(Crash("x"));
  EXPECT_TRUE(Await("late", 1));
}

TEST_F(ExporterTest, WhatIsYoungIsNotGivenUpWithWhatIsOld) {
  constexpr int64_t kGiveUpNs = 3 * kNsPerSecond;
  std::atomic<int> calls = 0;
  std::atomic<bool> is_there = false;
  collector_.answer_ = [&](int, collector::ExportLogsServiceResponse*) {
    ++calls;
    return is_there ? grpc::Status() : grpc::Status(grpc::StatusCode::UNAVAILABLE, "not yet");
  };
  Listen();
  Start({.give_up_ns = kGiveUpNs});
  exporter_->Add(Crash("first"));
  // It is tried alone; the others are tried together when it is given up.
  while (calls == 0) std::this_thread::yield();
  exporter_->Add(Crash("old"));
  std::this_thread::sleep_for(std::chrono::nanoseconds(kGiveUpNs / 2));
  exporter_->Add(Crash("young"));
  EXPECT_TRUE(Await("late", 2));
  is_there = true;
  EXPECT_TRUE(Await("sent", 1));
  EXPECT_EQ(collector_.bodies_, std::vector<std::string>{"young"});
}

TEST_F(ExporterTest, TheFirstDumpsOfAFingerprintFollowTheirRecords) {
  Listen();
  Start({.dumps_per_fingerprint = 2});
  for (const char* name : {"0", "1", "2"}) {
    exporter_->Add(Crash(name));
    EXPECT_TRUE(Await("waiting", 0));
    EXPECT_TRUE(Await("dumps_waiting", 0));
  }
  auto other = Crash("3");
  other->mutable_crash()->set_fingerprint("other");
  exporter_->Add(other);
  EXPECT_TRUE(Await("dumps_sent", 3));
  EXPECT_EQ(collector_.bodies_, (std::vector<std::string>{"0", "dump processes/1-1/dumps/0", "1",
                                                          "dump processes/1-1/dumps/1", "2", "3", "dump other"}));
}

TEST_F(ExporterTest, ADumpThatWasGivenUpOrRefusedGivesItsPlaceBack) {
  std::atomic<int> code = static_cast<int>(grpc::StatusCode::UNAVAILABLE);
  collector_.answer_ = [&](int, auto*) { return grpc::Status(static_cast<grpc::StatusCode>(code.load()), "no"); };
  Listen();
  Start({.dumps_per_fingerprint = 1, .give_up_ns = 200 * kNsPerMs});
  exporter_->Add(Crash("late"));
  EXPECT_TRUE(Await("dumps_late", 1));
  code = static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT);
  exporter_->Add(Crash("refused"));
  EXPECT_TRUE(Await("dumps_refused", 1));
  EXPECT_TRUE(Await("refused", 1));
  code = static_cast<int>(grpc::StatusCode::OK);
  exporter_->Add(Crash("sent"));
  EXPECT_TRUE(Await("dumps_sent", 1));
  exporter_->Add(Crash("next"));
  EXPECT_TRUE(Await("sent", 2));
  EXPECT_EQ(exporter_->Counters()["dumps_sent"], 1);
}

TEST_F(ExporterTest, DumpsThatAreTooLargeOrTooManyAreCountedAndTheirRecordsSent) {
  Listen();
  Start({.dumps_per_fingerprint = 1});
  auto large = Crash("large");
  large->add_notes(std::string(5u << 20, 'x'));
  exporter_->Add(large);
  EXPECT_TRUE(Await("dumps_too_large", 1));
  EXPECT_TRUE(Await("sent", 1));
  exporter_->Add(Crash("small"));
  EXPECT_TRUE(Await("dumps_sent", 1));

  server_->Shutdown();
  Start({.dumps_per_fingerprint = 100, .max_waiting_dump_bytes = 3 * Crash("0")->ByteSizeLong()});
  for (int i = 0; i < 5; ++i) exporter_->Add(Crash(std::to_string(i)));
  EXPECT_EQ(exporter_->Counters()["waiting"], 5);
  EXPECT_EQ(exporter_->Counters()["dumps_waiting"], 3);
  EXPECT_EQ(exporter_->Counters()["dumps_queue_full"], 2);
}

TEST_F(ExporterTest, ADumpThatIsNotTakenYetMakesWayForRecords) {
  std::atomic<bool> is_tried = false, is_added = false;
  collector_.answer_ = [&](int call, auto*) {
    if (call != 2) return grpc::Status();
    is_tried = true;
    while (!is_added) std::this_thread::yield();
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no dumps now");
  };
  Listen();
  Start({.dumps_per_fingerprint = 1});
  exporter_->Add(Crash("0"));
  while (!is_tried) std::this_thread::yield();
  exporter_->Add(Crash("1"));
  is_added = true;
  EXPECT_TRUE(Await("dumps_sent", 1));
  EXPECT_EQ(collector_.bodies_, (std::vector<std::string>{"0", "1", "dump processes/1-1/dumps/0"}));
}

TEST_F(ExporterTest, ItEndsInTimeThoughTheCollectorDoesNotAnswer) {
  holds_.lock();
  collector_.answer_ = [&](int, auto*) {
    const std::lock_guard wait(holds_);
    return grpc::Status::OK;
  };
  Listen();
  Start();
  exporter_->Add(Crash("x"));
  const int64_t begin_ns = MonotonicNs();
  exporter_.reset();
  EXPECT_LT(MonotonicNs() - begin_ns, 3 * kNsPerSecond);
  holds_.unlock();
}

TEST_F(ExporterTest, WhatWaitsIsSentBeforeTheEnd) {
  Listen();
  Start();
  exporter_->Add(Crash("last"));
  exporter_.reset();
  EXPECT_EQ(collector_.bodies_, std::vector<std::string>{"last"});
}

TEST_F(ExporterTest, MistakesAreSentences) {
  const auto sentence = [](OtlpOptions options) {
    auto started = OtlpExporter::Start(std::move(options));
    return started ? "" : started.error().message;
  };
  EXPECT_NE(sentence({.endpoint = "nonsense"}).find("is not understood"), std::string::npos);
  EXPECT_NE(sentence({.endpoint = "http://x", .headers = "x"}).find("OTEL_EXPORTER_OTLP_HEADERS"), std::string::npos);
  EXPECT_NE(sentence({.endpoint = "http://x", .ca_file = "/x"}).find("--otlp-ca is for"), std::string::npos);
  EXPECT_NE(sentence({.endpoint = "https://x", .ca_file = "/nonexistent"}).find("cannot be read from /nonexistent"),
            std::string::npos);
}

}  // namespace
}  // namespace stackd

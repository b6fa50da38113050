// Samples that are counted, and the formats for them.
#include <gmock/gmock.h>
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "client/record/record_formats.h"
#include "client/record/sample_period.h"
#include "client/record/stack_samples.h"
#include "pprof/profile.pb.h"

namespace stackd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMs = 1'000'000;
constexpr RecordTimes kTimes = {.begin_wall_ns = 7, .duration_ns = 300 * kMs};

v1::Dump EmptySample() {
  v1::Dump sample;
  sample.mutable_process()->set_display_name("bank");
  sample.mutable_process()->set_pid(12);
  return sample;
}

// A thread in main -> `function`, or without a stack if that is empty.
v1::Thread* AddThread(int32_t tid, const std::string& name, const std::string& function, v1::Dump* sample) {
  v1::Thread* thread = sample->add_threads();
  thread->set_tid(tid);
  thread->set_name(name);
  sample->mutable_thread_counts()->set_listed(sample->threads_size());
  if (function.empty()) {
    thread->set_state("running");
    return thread;
  }
  thread->set_stack(sample->stacks_size());
  v1::Stack* stack = sample->add_stacks();
  stack->set_end(v1::Stack::ROOT);
  stack->add_frames()->set_function(function);
  stack->add_frames()->set_function("main");
  return thread;
}

// Two threads wait for a lock, and one runs; the agent's own waits for the daemon.
v1::Dump Sample() {
  v1::Dump sample = EmptySample();
  for (int32_t tid : {13, 14}) {
    v1::Wait* wait = AddThread(tid, "worker", "Transfer", &sample)->mutable_wait();
    wait->set_kind(v1::Wait::MUTEX);
    wait->set_explanation("waits for mutex 0x40, held by thread writer (tid 15)");
  }
  AddThread(15, "writer", "", &sample);
  AddThread(16, "stackd-agent", "poll", &sample)->set_is_agent(true);
  v1::Task* task = sample.add_tasks();
  task->set_kind(v1::Task::GOROUTINE);
  task->set_stack(0);
  task->set_wait_reason("chan receive");
  return sample;
}

std::string Written(const std::function<void(const Sink&)>& write) {
  std::string text;
  write([&](std::string_view piece) {
    text += piece;
    return true;
  });
  return text;
}

TEST(Record, CountsWhoWasWhereAndWaitedForWhat) {
  StackSamples samples;
  for (int i = 0; i < 3; ++i) samples.Add(Sample());
  samples.Miss("the daemon was busy");
  EXPECT_EQ(samples.sample_count(), 3);
  EXPECT_EQ(samples.total(), 12) << "three threads and a goroutine, without the agent's";
  const auto most_first = samples.MostFirst();
  ASSERT_EQ(most_first.size(), 3u);
  EXPECT_EQ(most_first[0]->who, "worker");
  EXPECT_EQ(most_first[0]->count, 6);
  EXPECT_EQ(most_first[0]->most_at_once, 2);
  EXPECT_EQ(most_first[0]->wait, "waits for mutex 0x40, held by thread writer (tid 15)");
  EXPECT_EQ(Written([&](const Sink& sink) { WriteRecordText(samples, kTimes, sink); }),
            "bank (pid 12): 3 samples in 0.3 s, one each 100 ms\n"
            "1 sample missed: the daemon was busy\n"
            "\n"
            "50.0% · 2 threads: worker · waits for mutex 0x40, held by thread writer (tid 15)\n"
            "  #0  Transfer (native code)\n"
            "  #1  main (native code)\n"
            "\n"
            "25.0% · 1 goroutine · chan receive\n"
            "  #0  Transfer (native code)\n"
            "  #1  main (native code)\n"
            "\n"
            "25.0% · 1 thread: writer\n"
            "  (no stack: running)\n");
}

TEST(Record, IdleThreadsComeLastInTheTextAndWithoutStacks) {
  StackSamples samples;
  v1::Dump sample = Sample();
  for (int32_t tid : {17, 18, 19, 20}) AddThread(tid, tid < 20 ? "pool" : "timer", "epoll_wait", &sample);
  v1::Finding* idle = sample.add_findings();
  idle->set_kind(v1::Finding::IDLE);
  for (int32_t tid : {17, 18, 19, 20}) idle->add_tids(tid);
  samples.Add(sample);
  const std::string text = Written([&](const Sink& sink) { WriteRecordText(samples, kTimes, sink); });
  EXPECT_THAT(text, testing::EndsWith("\n50.0% idle: waiting for work, time or events\n  37.5% · pool\n  12.5% · timer\n"));
  EXPECT_THAT(text, Not(HasSubstr("epoll_wait")));
  EXPECT_THAT(text, HasSubstr("\n25.0% · 2 threads: worker · waits for mutex"));
  EXPECT_THAT(Written([&](const Sink& sink) { WriteRecordFolded(samples, sink); }),
              HasSubstr("bank;pool;main;epoll_wait 3\n"));
}

TEST(Record, TheTextHasThreadsOfAllNamesInOnePlaceTogether) {
  StackSamples samples;
  v1::Dump sample = EmptySample();
  for (int32_t tid : {13, 14, 15}) AddThread(tid, tid < 15 ? "a" : "b", "Compute", &sample);
  samples.Add(sample);
  EXPECT_THAT(Written([&](const Sink& sink) { WriteRecordText(samples, kTimes, sink); }),
              HasSubstr("\n100.0% · 3 threads: a (2), b (1)\n  #0  Compute"));
}

TEST(Record, FoldedStacksEndWithWhatIsWaitedFor) {
  StackSamples samples;
  samples.Add(Sample());
  const std::string folded = Written([&](const Sink& sink) { WriteRecordFolded(samples, sink); });
  EXPECT_THAT(folded, HasSubstr("bank;worker;main;Transfer;[waits for mutex 0x40, held by thread writer (tid 15)] 2\n"));
  EXPECT_THAT(folded, HasSubstr("bank;writer;[no stack: running] 1\n"));
  EXPECT_THAT(folded, HasSubstr("bank;goroutine;main;Transfer;[chan receive] 1\n"));
  EXPECT_THAT(folded, Not(HasSubstr("stackd-agent")));
}

TEST(Record, PprofHasCountsAndTime) {
  StackSamples samples;
  for (int i = 0; i < 3; ++i) samples.Add(Sample());
  const std::string bytes = Written([&](const Sink& sink) { WriteRecordPprof(samples, kTimes, sink); });
  google::protobuf::io::ArrayInputStream compressed(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::GzipInputStream plain(&compressed, google::protobuf::io::GzipInputStream::GZIP);
  pprof::Profile profile;
  ASSERT_TRUE(profile.ParseFromZeroCopyStream(&plain));
  ASSERT_EQ(profile.sample_type_size(), 2);
  EXPECT_EQ(profile.string_table(profile.sample_type(1).type()), "time");
  EXPECT_EQ(profile.period(), 100 * kMs);
  EXPECT_EQ(profile.duration_nanos(), 300 * kMs);
  ASSERT_EQ(profile.sample_size(), 3);
  EXPECT_THAT(profile.sample(0).value(), testing::ElementsAre(6, 600 * kMs));
  EXPECT_EQ(profile.sample(0).location_id_size(), 3) << "the wait, Transfer, main";
}

TEST(Record, SpeedscopeHasAProfileOfThreadsAndOneOfTasksInTime) {
  StackSamples samples;
  samples.Add(Sample());
  const std::string json = Written([&](const Sink& sink) { WriteRecordSpeedscope(samples, kTimes, sink); });
  EXPECT_THAT(json, HasSubstr(R"("name":"bank: threads","unit":"nanoseconds","startValue":0,"endValue":900000000)"));
  EXPECT_THAT(json, HasSubstr(R"("name":"bank: tasks","unit":"nanoseconds","startValue":0,"endValue":300000000)"));
}

// A sample when the agent's own thread had used the processor for so long.
v1::Dump SampleAt(int64_t agent_ms) {
  v1::Dump sample = Sample();
  sample.mutable_threads(3)->mutable_cpu_time()->set_nanos(static_cast<int32_t>(agent_ms * kMs));
  return sample;
}

TEST(Record, SamplesThatCostTheProcessMuchAreFewer) {
  SamplePeriod period(std::nullopt);
  EXPECT_EQ(period.every_ns(), 100 * kMs);
  period.Learn(SampleAt(500));
  EXPECT_EQ(period.every_ns(), 100 * kMs) << "what came before the first sample is not its cost";
  period.Learn(SampleAt(530));
  EXPECT_EQ(period.every_ns(), 600 * kMs);
  period.Learn(SampleAt(531));
  EXPECT_EQ(period.every_ns(), 600 * kMs);
  period.Learn(EmptySample());
  period.Learn(SampleAt(900));
  EXPECT_EQ(period.every_ns(), 600 * kMs) << "the thread had left meanwhile";

  SamplePeriod fixed(200 * kMs);
  for (int64_t agent_ms : {500, 600}) fixed.Learn(SampleAt(agent_ms));
  EXPECT_EQ(fixed.every_ns(), 200 * kMs);
}

TEST(Record, WhatFindsNoRoomIsCounted) {
  StackSamples samples;
  v1::Dump cut = Sample();
  cut.mutable_thread_counts()->set_listed(cut.threads_size() + 6);
  samples.Add(cut);
  EXPECT_EQ(samples.left_out(), 6);
  EXPECT_EQ(samples.total(), 10);
  EXPECT_THAT(Written([&](const Sink& sink) { WriteRecordText(samples, kTimes, sink); }),
              HasSubstr("60.0% of the time is not shown"));
  v1::Dump many = EmptySample();
  for (size_t i = 0; i < StackSamples::kMaxStacks; ++i) {
    AddThread(static_cast<int32_t>(i) + 100, "t" + std::to_string(i), "f", &many);
  }
  samples.Add(many);
  EXPECT_EQ(samples.MostFirst().size(), StackSamples::kMaxStacks);
  EXPECT_EQ(samples.left_out(), 6 + 3) << "of the first sample three stacks were known";
}

}  // namespace
}  // namespace stackd

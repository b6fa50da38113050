// The formats for viewers of profiles: pprof and speedscope.
#include <gmock/gmock.h>
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "daemon/config/version.h"
#include "daemon/export/export.h"
#include "daemon/export/piecewise.h"
#include "pprof/profile.pb.h"

namespace stackd {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

std::string Export(void (*format)(const v1::Dump&, const Sink&), const v1::Dump& dump) {
  std::string bytes;
  format(dump, [&](std::string_view piece) {
    EXPECT_LE(piece.size(), Piecewise::kPieceBytes);
    bytes += piece;
    return true;
  });
  return bytes;
}

v1::Frame Native(const std::string& function, const std::string& file, int line, const std::string& module,
                 const std::string& address, v1::Frame::Origin origin = v1::Frame::CFI) {
  v1::Frame frame;
  frame.set_function(function);
  frame.set_file(file);
  frame.set_line(line);
  frame.set_module(module);
  frame.set_address(address);
  frame.set_origin(origin);
  return frame;
}

v1::Frame Managed(const std::string& function, const std::string& file, int line, v1::Language language) {
  v1::Frame frame;
  frame.set_function(function);
  frame.set_file(file);
  frame.set_line(line);
  frame.set_language(language);
  frame.set_origin(v1::Frame::RUNTIME);
  frame.set_address("0x7fff0000");  // of code that a runtime compiled
  return frame;
}

v1::Thread* AddThread(int32_t tid, const std::string& name, const std::string& state, int stack, v1::Dump* dump) {
  v1::Thread* thread = dump->add_threads();
  thread->set_tid(tid);
  thread->set_name(name);
  thread->set_state(state);
  if (stack >= 0) thread->set_stack(stack);
  return thread;
}

v1::Task* AddTask(v1::Task::Kind kind, uint64_t id, int stack, v1::Dump* dump) {
  v1::Task* task = dump->add_tasks();
  task->set_kind(kind);
  task->set_id(id);
  task->set_state("waiting");
  if (stack >= 0) task->set_stack(stack);
  return task;
}

v1::StackGroup* AddGroup(const std::vector<int32_t>& tids, int stack, v1::Dump* dump) {
  v1::StackGroup* group = dump->add_groups();
  group->set_thread_count(static_cast<int32_t>(tids.size()));
  group->mutable_tids()->Assign(tids.begin(), tids.end());
  *group->mutable_stack() = dump->stacks(stack);
  return group;
}

void AddStack(const std::vector<v1::Frame>& frames, v1::Dump* dump) {
  v1::Stack* stack = dump->add_stacks();
  for (const v1::Frame& frame : frames) *stack->add_frames() = frame;
}

// Three threads in a queue, one in Python, one without a stack, the agent's own, and three tasks.
v1::Dump MakeDump() {
  v1::Dump dump;
  dump.set_name("processes/7-1/dumps/a");
  dump.mutable_process()->set_display_name("checkout");
  dump.mutable_process()->set_pid(7);
  dump.mutable_create_time()->set_seconds(1'795'230'902);
  dump.mutable_create_time()->set_nanos(5);
  dump.mutable_capture_duration()->set_nanos(9'800'000);
  dump.add_notes("1 thread did not answer");
  AddStack(
      {Native("futex_wait", "", 0, "libc.so.6", "0x7f0000001010", v1::Frame::REGISTERS),
       Native("Queue::Lock()", "/src/queue.h", 12, "checkout", "0x400120", v1::Frame::INLINED),
       Native("Queue::Pop()", "/src/queue.h", 41, "checkout", "0x400120", v1::Frame::INLINED),
       Native("Worker::Run()", "/src/worker.cc", 88, "checkout", "0x400120"), Native("", "", 0, "libfoo.so", "0x9000")},
      &dump);
  AddStack({Native("read", "", 0, "libc.so.6", "0x7f0000001010"), Managed("fetch", "/src/shop.py", 3, v1::PYTHON)}, &dump);
  AddStack({Managed("main.serve", "/src/main.go", 31, v1::GO)}, &dump);
  AddStack({Native("capture_helper", "", 0, "libstackd_agent.so", "0x1")}, &dump);
  const auto add_module = [&](const char* path, const char* address, const char* build_id, const char* symbols) {
    v1::Module* module = dump.add_modules();
    module->set_path(path);
    module->set_address(address);
    module->set_build_id(build_id);
    module->set_symbols(symbols);
  };
  add_module("/app/checkout (deleted)", "0x400000", "ab01", "DWARF");
  add_module("/lib/libc.so.6", "0x7f0000000000", "cd02", "DYNSYM");

  for (int32_t tid : {7, 8, 9}) {
    v1::Thread* thread = AddThread(tid, tid == 9 ? "io" : "worker", "in a system call (futex)", 0, &dump);
    thread->mutable_wait()->set_kind(v1::Wait::CONDITION_VARIABLE);
  }
  AddThread(10, "py", "running", 1, &dump);
  AddThread(11, "mute", "blocks signal 34", -1, &dump);
  AddThread(12, "stackd-agent", "running", 3, &dump)->set_is_agent(true);
  AddTask(v1::Task::GOROUTINE, 17, 2, &dump)->set_wait_reason("chan receive");
  AddTask(v1::Task::GOROUTINE, 18, 2, &dump)->set_name("named");
  AddTask(v1::Task::VIRTUAL_THREAD, 30, -1, &dump)->set_tid(10);
  AddGroup({7, 8, 9}, 0, &dump);
  AddGroup({10}, 1, &dump);
  AddGroup({}, 2, &dump)->set_task_count(2);
  AddGroup({12}, 3, &dump)->set_is_agent(true);
  return dump;
}

pprof::Profile Parsed(const v1::Dump& dump) {
  const std::string bytes = Export(ExportPprof, dump);
  google::protobuf::io::ArrayInputStream compressed(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::GzipInputStream plain(&compressed, google::protobuf::io::GzipInputStream::GZIP);
  pprof::Profile profile;
  EXPECT_TRUE(profile.ParseFromZeroCopyStream(&plain));
  EXPECT_EQ(plain.ZlibErrorCode(), 1) << "the file does not end";  // Z_STREAM_END
  return profile;
}

// A pprof file, with its numbers resolved.
struct Pprof {
  struct Sample {
    std::vector<std::string> frames;  // innermost first: "function file:line"
    std::map<std::string, std::string> labels;
    std::vector<int64_t> values;
  };

  explicit Pprof(const v1::Dump& dump) : profile(Parsed(dump)) {
    EXPECT_EQ(text(0), "");
    for (const pprof::Sample& sample : profile.sample()) samples.push_back(Resolved(sample));
  }

  const std::string& text(int64_t index) const { return profile.string_table(static_cast<int>(index)); }
  const pprof::Location& location(uint64_t id) const { return ById(profile.location(), id); }

  template <typename Message>
  static const Message& ById(const google::protobuf::RepeatedPtrField<Message>& messages, uint64_t id) {
    const Message& message = messages.at(static_cast<int>(id) - 1);
    EXPECT_EQ(message.id(), id);
    return message;
  }

  Sample Resolved(const pprof::Sample& sample) const {
    Sample resolved{.values = {sample.value().begin(), sample.value().end()}};
    for (uint64_t id : sample.location_id()) {
      for (const pprof::Line& line : location(id).line()) {
        const pprof::Function& function = ById(profile.function(), line.function_id());
        resolved.frames.push_back(text(function.name()) + " " + text(function.filename()) + ":" +
                                  std::to_string(line.line()));
      }
    }
    for (const pprof::Label& label : sample.label()) {
      resolved.labels[text(label.key())] = label.str() != 0 ? text(label.str()) : std::to_string(label.num());
    }
    return resolved;
  }

  pprof::Profile profile;
  std::vector<Sample> samples;
};

TEST(ExportPprof, HasASampleForEachThreadAndTask) {
  const Pprof pprof(MakeDump());
  ASSERT_EQ(pprof.samples.size(), 8u);
  for (const Pprof::Sample& sample : pprof.samples) EXPECT_THAT(sample.values, ElementsAre(1));
  EXPECT_THAT(pprof.samples[0].frames,
              ElementsAre("futex_wait :0", "Queue::Lock() /src/queue.h:12", "Queue::Pop() /src/queue.h:41",
                          "Worker::Run() /src/worker.cc:88", "libfoo.so :0"));
  EXPECT_THAT(pprof.samples[0].labels,
              UnorderedElementsAre(Pair("process", "checkout"), Pair("thread", "worker"), Pair("tid", "7"),
                                   Pair("state", "in a system call (futex)"), Pair("wait", "CONDITION_VARIABLE")));
  EXPECT_THAT(pprof.samples[3].labels, Contains(Pair("language", "Python")));
  EXPECT_THAT(pprof.samples[4].frames, ElementsAre("[no stack: blocks signal 34] :0"));
  EXPECT_THAT(pprof.samples[5].frames, ElementsAre("main.serve /src/main.go:31"));
  EXPECT_THAT(pprof.samples[5].labels,
              UnorderedElementsAre(Pair("process", "checkout"), Pair("task", "goroutine"), Pair("task_id", "17"),
                                   Pair("state", "waiting"), Pair("wait", "chan receive"), Pair("language", "Go")));
  EXPECT_THAT(pprof.samples[6].labels, Contains(Pair("task_name", "named")));
  EXPECT_THAT(pprof.samples[7].frames, ElementsAre("[no stack: waiting] :0"));
  EXPECT_THAT(pprof.samples[7].labels, AllOf(Contains(Pair("tid", "10")), Contains(Pair("task", "virtual thread"))));
}

TEST(ExportPprof, SaysWhatItsNumbersAreAndWhen) {
  const Pprof pprof(MakeDump());
  ASSERT_EQ(pprof.profile.sample_type_size(), 1);
  EXPECT_EQ(pprof.text(pprof.profile.sample_type(0).type()), "threads");
  EXPECT_EQ(pprof.text(pprof.profile.sample_type(0).unit()), "count");
  EXPECT_EQ(pprof.profile.time_nanos(), 1'795'230'902'000'000'005);
  EXPECT_EQ(pprof.profile.duration_nanos(), 9'800'000);
  std::vector<std::string> comments;
  for (int64_t comment : pprof.profile.comment()) comments.push_back(pprof.text(comment));
  EXPECT_THAT(comments, Contains(HasSubstr("dump processes/7-1/dumps/a")));
  EXPECT_THAT(comments, Contains(HasSubstr("1 thread did not answer")));
}

TEST(ExportPprof, HasOneLocationForAFunctionAndWhatIsInlinedIntoIt) {
  const Pprof pprof(MakeDump());
  const pprof::Sample& sample = pprof.profile.sample(0);
  ASSERT_EQ(sample.location_id_size(), 3);
  const pprof::Location& interrupted = pprof.location(sample.location_id(0));
  EXPECT_EQ(interrupted.address(), 0x7f0000001010);
  const pprof::Location& inlined = pprof.location(sample.location_id(1));
  EXPECT_EQ(inlined.line_size(), 3);
  EXPECT_EQ(inlined.address(), 0x40011fu) << "in the call, not behind it";
  const pprof::Mapping& mapping = Pprof::ById(pprof.profile.mapping(), inlined.mapping_id());
  EXPECT_EQ(pprof.text(mapping.filename()), "/app/checkout (deleted)");
  EXPECT_EQ(pprof.text(mapping.build_id()), "ab01");
  EXPECT_EQ(mapping.memory_start(), 0x400000u);
  EXPECT_TRUE(mapping.has_functions() && mapping.has_line_numbers() && mapping.has_inline_frames());
  EXPECT_FALSE(Pprof::ById(pprof.profile.mapping(), interrupted.mapping_id()).has_line_numbers());
  EXPECT_EQ(pprof.location(sample.location_id(2)).mapping_id(), 0u) << "no module of this name";
  // Three threads have one stack, and the files have each place once.
  EXPECT_THAT(pprof.profile.sample(1).location_id(), testing::ElementsAreArray(sample.location_id()));
}

TEST(ExportPprof, GivesFramesOfRuntimesNoAddress) {
  const Pprof pprof(MakeDump());
  const pprof::Location& managed = pprof.location(pprof.profile.sample(3).location_id(1));
  EXPECT_EQ(managed.address(), 0u);
  EXPECT_EQ(managed.mapping_id(), 0u);
}

TEST(ExportPprof, HasATaskOnceInEachPlaceThatItWaitsIn) {
  v1::Dump dump;
  for (const char* function : {"recv", "sleep"}) AddStack({Managed(function, "", 0, v1::RUST)}, &dump);
  v1::Task* task = AddTask(v1::Task::TOKIO_TASK, 1, 0, &dump);
  task->add_other_stacks(1);
  task->add_other_stacks(0);
  const Pprof pprof(dump);
  ASSERT_EQ(pprof.samples.size(), 2u);
  EXPECT_THAT(pprof.samples[0].frames, ElementsAre("recv :0"));
  EXPECT_THAT(pprof.samples[1].frames, ElementsAre("sleep :0"));
}

// A file of speedscope's, with its numbers resolved.
struct Speedscope {
  struct Profile {
    std::map<std::string, double> weights;  // by "outermost;...;innermost"
    double total = 0;
  };

  explicit Speedscope(const v1::Dump& dump) {
    const auto status = google::protobuf::util::JsonStringToMessage(Export(ExportSpeedscope, dump), &file);
    EXPECT_TRUE(status.ok()) << status.ToString();
    for (const auto& value : Field(file, "profiles").list_value().values())
      profiles.push_back(Resolved(value.struct_value()));
  }

  using Struct = google::protobuf::Struct;
  static const google::protobuf::Value& Field(const Struct& object, const std::string& key) {
    return object.fields().at(key);
  }
  const google::protobuf::ListValue& frames() const {
    return Field(Field(file, "shared").struct_value(), "frames").list_value();
  }

  Profile Resolved(const Struct& object) const {
    Profile profile{.weights = {}, .total = Field(object, "endValue").number_value()};
    const auto& samples = Field(object, "samples").list_value().values();
    const auto& weights = Field(object, "weights").list_value().values();
    EXPECT_EQ(samples.size(), weights.size());
    for (int i = 0; i < samples.size(); ++i) {
      std::string stack;
      for (const auto& frame : samples[i].list_value().values()) {
        const Struct& of_frame = frames().values(static_cast<int>(frame.number_value())).struct_value();
        stack += (stack.empty() ? "" : ";") + Field(of_frame, "name").string_value();
      }
      profile.weights[stack] += weights[i].number_value();
    }
    return profile;
  }

  Struct file;
  std::vector<Profile> profiles;
};

TEST(ExportSpeedscope, HasAProfileOfThreadsAndOneOfTasks) {
  const Speedscope speedscope(MakeDump());
  ASSERT_EQ(speedscope.profiles.size(), 2u);
  EXPECT_THAT(speedscope.profiles[0].weights,
              UnorderedElementsAre(Pair("worker;libfoo.so;Worker::Run();Queue::Pop();Queue::Lock();futex_wait", 2),
                                   Pair("io;libfoo.so;Worker::Run();Queue::Pop();Queue::Lock();futex_wait", 1),
                                   Pair("py;fetch;read", 1), Pair("mute;[no stack: blocks signal 34]", 1)));
  EXPECT_EQ(speedscope.profiles[0].total, 5);
  EXPECT_THAT(speedscope.profiles[1].weights, UnorderedElementsAre(Pair("main.serve", 2), Pair("[no stack: waiting]", 1)));
  EXPECT_EQ(speedscope.profiles[1].total, 3);
  EXPECT_EQ(Speedscope::Field(speedscope.file, "exporter").string_value(), std::string("stackd ") + kVersion);
  EXPECT_EQ(Speedscope::Field(speedscope.file, "name").string_value(), "checkout (pid 7), processes/7-1/dumps/a");
}

TEST(ExportSpeedscope, HasEachFrameOnceWithFileAndLine) {
  const Speedscope speedscope(MakeDump());
  std::map<std::string, int> seen;
  for (const auto& frame : speedscope.frames().values()) {
    const auto& fields = frame.struct_value().fields();
    std::string text = fields.at("name").string_value();
    if (fields.contains("file")) text += " " + fields.at("file").string_value();
    if (fields.contains("line")) text += ":" + std::to_string(static_cast<int>(fields.at("line").number_value()));
    ++seen[text];
  }
  EXPECT_THAT(seen, Each(Pair(testing::_, 1)));
  EXPECT_THAT(seen, AllOf(Contains(Key("Worker::Run() /src/worker.cc:88")), Contains(Key("futex_wait libc.so.6")),
                          Contains(Key("main.serve /src/main.go:31")), Contains(Key("worker"))));
}

TEST(ExportSpeedscope, HasNoTasksWhereThereAreNone) {
  v1::Dump dump = MakeDump();
  dump.clear_tasks();
  dump.mutable_groups()->DeleteSubrange(2, 1);
  EXPECT_EQ(Speedscope(dump).profiles.size(), 1u);
  EXPECT_EQ(Speedscope(v1::Dump()).profiles.size(), 1u) << "a viewer wants one";
}

// "worker;main;f" and how many threads, as folded stacks have it.
std::map<std::string, double> Folded(const v1::Dump& dump) {
  std::map<std::string, double> counts;
  std::istringstream lines(Export(ExportFolded, dump));
  for (std::string line; std::getline(lines, line);) {
    const size_t process_end = line.find(';') + 1, count = line.rfind(' ');
    counts[line.substr(process_end, count - process_end)] += std::stoi(line.substr(count));
  }
  return counts;
}

TEST(Profiles, CountThreadsAsFoldedStacksDo) {
  v1::Dump dump = MakeDump();
  dump.mutable_threads()->DeleteSubrange(4, 1);  // the one without a stack
  EXPECT_EQ(Speedscope(dump).profiles[0].weights, Folded(dump));
  std::map<std::string, double> of_pprof;
  for (const Pprof::Sample& sample : Pprof(dump).samples) {
    if (sample.labels.contains("task")) continue;
    std::string stack = sample.labels.at("thread");
    for (auto frame = sample.frames.rbegin(); frame != sample.frames.rend(); ++frame) {
      stack += ";" + frame->substr(0, frame->rfind(' '));
    }
    ++of_pprof[stack];
  }
  EXPECT_EQ(of_pprof, Folded(dump));
}

TEST(Profiles, CountRecursionAndNameTheGap) {
  v1::Dump dump;
  AddThread(1, "walker", "running", 0, &dump);
  AddStack({Native("memmove", "", 0, "libc.so.6", "0x1"), Native("walk", "", 0, "app", "0x2"),
            Native("main", "", 0, "app", "0x3")},
           &dump);
  v1::Stack* stack = dump.mutable_stacks(0);
  stack->mutable_frames(1)->set_repeat_count(65'412);
  stack->mutable_frames(1)->set_repeat_length(1);
  stack->set_omitted_bytes(8'307'000);
  stack->set_omitted_before(2);
  AddGroup({1}, 0, &dump);
  const std::string gap = "[7.9 MiB of the stack are not shown here: not copied]";
  EXPECT_THAT(Pprof(dump).samples[0].frames, ElementsAre("memmove :0", "walk × 65,412 :0", gap + " :0", "main :0"));
  EXPECT_THAT(Speedscope(dump).profiles[0].weights, ElementsAre(Pair("walker;main;" + gap + ";walk × 65,412;memmove", 1)));
}

TEST(Profiles, ReadAnyIndexAndRepetitionThatADumpMayClaim) {
  for (int32_t number : {-5, 0, 1, 2, 7, 1 << 30}) {
    v1::Dump dump = MakeDump();
    dump.mutable_threads(0)->set_stack(number);
    AddTask(v1::Task::TOKIO_TASK, 1, number, &dump)->add_other_stacks(number);
    for (v1::Stack& stack : *dump.mutable_stacks()) {
      stack.mutable_frames(0)->set_repeat_count(number);
      stack.mutable_frames(0)->set_repeat_length(number);
      stack.mutable_frames(0)->set_address("no address");
      stack.mutable_frames()->rbegin()->set_origin(v1::Frame::INLINED);
      stack.set_omitted_bytes(1);
      stack.set_omitted_before(number);
    }
    EXPECT_EQ(Pprof(dump).samples.size(), 9u);
    EXPECT_EQ(Speedscope(dump).profiles.size(), 2u);
  }
}

TEST(Profiles, LetNoNameDoHarm) {
  const std::string evil = "\x1b[2J\x07\r\n\x7f\xc2\x9b\xe2\x80\xae\"\\</script><b>\xff";
  const std::string shown = "\\x1b[2J\\x07\\x0d\\x0a\\x7f\\x9b\\u{202e}\"\\</script><b>\\xff";
  const std::string huge = std::string(1 << 20, 'x') + "end";
  for (const std::string& name : {evil, huge}) {
    v1::Dump dump = MakeDump();
    dump.set_name(name);
    dump.mutable_process()->set_display_name(name);
    dump.add_notes(name);
    for (v1::Module& module : *dump.mutable_modules()) module.set_path(name);
    for (v1::Thread& thread : *dump.mutable_threads()) {
      thread.set_name(name);
      thread.set_state(name);
    }
    for (v1::Task& task : *dump.mutable_tasks()) {
      task.set_name(name);
      task.set_wait_reason(name);
    }
    const auto rename = [&](v1::Stack* stack) {
      for (v1::Frame& frame : *stack->mutable_frames()) {
        frame.set_function(name);
        frame.set_file(name);
        frame.set_module(name);
      }
    };
    for (v1::Stack& stack : *dump.mutable_stacks()) rename(&stack);
    for (v1::StackGroup& group : *dump.mutable_groups()) rename(group.mutable_stack());

    const Pprof pprof(dump);
    const Speedscope speedscope(dump);
    std::vector<std::string> texts(pprof.profile.string_table().begin(), pprof.profile.string_table().end());
    for (const auto& frame : speedscope.frames().values()) {
      texts.push_back(frame.struct_value().fields().at("name").string_value());
    }
    EXPECT_THAT(texts, Contains(name == evil ? shown : std::string(4096, 'x') + "…"));
    for (const std::string& text : texts) {
      EXPECT_LE(text.size(), 5000u);
      EXPECT_TRUE(std::ranges::none_of(text, [](unsigned char c) { return c < ' ' || c == 0x7f; })) << text;
      EXPECT_THAT(text, AllOf(Not(HasSubstr("\xc2\x9b")), Not(HasSubstr("\xe2\x80\xae"))));
    }
    EXPECT_THAT(Export(ExportSpeedscope, dump), Not(HasSubstr("<")));
  }
}

// 10,000 threads with a stack each, and 100,000 tasks with names in a thousand places.
v1::Dump MakeLargeDump() {
  v1::Dump dump;
  dump.mutable_process()->set_display_name("large");
  for (int i = 0; i < 11'000; ++i) {
    std::vector<v1::Frame> frames;
    for (int k = 0; k < 20; ++k) {
      const std::string name = "f" + std::to_string(k) + (k == 0 ? "_" + std::to_string(i) : "");
      frames.push_back(Native(name, "/src/file.cc", k, "app", "0x" + std::to_string(1000 + k)));
    }
    AddStack(frames, &dump);
  }
  for (int i = 0; i < 10'000; ++i) {
    AddThread(i + 1, "worker-" + std::to_string(i), "running", i, &dump);
    AddGroup({i + 1}, i, &dump);
  }
  for (int i = 0; i < 100'000; ++i) {
    AddTask(v1::Task::ASYNCIO_TASK, i + 1, 10'000 + i % 1000, &dump)->set_name("Task-" + std::to_string(i));
  }
  for (int i = 0; i < 1000; ++i) AddGroup({}, 10'000 + i, &dump)->set_task_count(100);
  return dump;
}

TEST(Profiles, HaveAllOfALargeDump) {
  const v1::Dump dump = MakeLargeDump();
  EXPECT_EQ(Parsed(dump).sample_size(), 110'000);
  const Speedscope speedscope(dump);
  EXPECT_EQ(speedscope.profiles[0].total, 10'000);
  EXPECT_EQ(speedscope.profiles[1].total, 100'000);
}

TEST(Profiles, StopWhenTheReaderIsGone) {
  const v1::Dump dump = MakeLargeDump();
  for (const auto format : {ExportPprof, ExportSpeedscope}) {
    int pieces = 0;
    format(dump, [&](std::string_view) {
      ++pieces;
      return false;
    });
    EXPECT_EQ(pieces, 1);
  }
}

}  // namespace
}  // namespace stackd

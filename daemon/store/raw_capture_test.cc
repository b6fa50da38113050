#include "daemon/store/raw_capture.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "daemon/base/fd.h"
#include "daemon/modules/address_map.h"
#include "daemon/modules/module.h"
#include "daemon/store/raw_capture.pb.h"

namespace stackd {
namespace {

StackCopy MakeStack(uint64_t base_avma, uint32_t word_count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> masks((word_count + 63) / 64), words;
  for (uint32_t i = 0; i < word_count; ++i) {
    if (random() % 3 != 0) continue;
    masks[i / 64] |= 1ull << (i % 64);
    words.push_back(random());
  }
  return {base_avma, word_count, std::move(masks), std::move(words)};
}

Capture MakeCapture() {
  Capture capture;
  capture.process = {.id = "4711-100",
                     .pid = 4711,
                     .uid = 1000,
                     .abi_version = 1,
                     .display_name = "checkout",
                     .executable = "/srv/checkout",
                     .argv0 = "checkout",
                     .hostname = "pod\xff",
                     .start_wall_ns = 1,
                     .connect_wall_ns = 2,
                     .thread_count = 3,
                     .share = Share::kNames,
                     .limits = {"a limit"},
                     .resource_attributes = {{"k8s.pod.name", "checkout-0"}}};
  capture.trigger = Trigger::kHang;
  capture.begin_wall_ns = 123;
  capture.duration_ns = 456;
  capture.partial = true;
  capture.memory_read_bytes = 4711;
  capture.dump_signal = 34;
  capture.notes = {"one", "two"};
  for (uint32_t i = 0; i < 5; ++i) {
    ThreadCapture& thread = capture.threads.emplace_back();
    thread.tid = static_cast<int32_t>(100 + i);
    thread.name = std::string(i, 'n');
    thread.status = i == 4 ? ThreadStatus::kUninterruptible : ThreadStatus::kCaptured;
    thread.kernel_state = 'D';
    thread.wait_channel = i == 4 ? "nfs_wait" : "";
    thread.cpu_ns = i;
    thread.pause_ns = 10 * i;
    thread.thread_self_avma = 0x7f00 + i;
    thread.has_stack = i < 4;
    thread.stack_truncated = i == 3;
    for (size_t r = 0; r < thread.registers.value.size(); ++r) thread.registers.value[r] = 1000 * i + r;
    // None, less than a mask, exactly one, and more.
    thread.stack = MakeStack(0x7fff0000 + i * 0x1000, std::vector<uint32_t>{0, 13, 64, 200, 0}[i], i);
  }
  capture.threads[2].is_agent = true;
  capture.threads[3].read_asleep = true;
  capture.threads[3].registers.known = KnownAsleep(capture.threads[3].registers);
  capture.threads[1].call = SystemCall{.number = 202, .known_arguments = 0b11, .arguments = {0x601000, 128}};
  capture.threads[3].call = SystemCall{.number = 7, .known_arguments = 0, .arguments = {}};
  capture.threads[3].waited_fds = {0, 7};
  capture.threads[4].waited_fds = {9};
  capture.threads[0].unmoved_ns = 0;
  capture.threads[2].unmoved_ns = 61'000'000'000;
  capture.threads[1].absent_ns = 7;
  capture.hang = HangCapture{.cause = HangCause::kSpin,
                             .explanation = "it spins",
                             .tid = 102,
                             .heartbeat = "loop",
                             .duration_ns = 5,
                             .rule = "spins"};
  capture.futexes = {
      {.avma = 0x601000, .value = 2, .mutex = PthreadMutex{4, 101, false, 3, 2, 1}},
      {.avma = 0x602008,
       .value = 3,
       .rwlock =
           GlibcRwlock{
               .avma = 0x602000, .reader_count = 4, .write_locked = true, .writer_tid = 100, .prefers_writers = true}},
      {.avma = 0x603000, .value = 7, .changes_hands = true, .thread_tid = 102},
      {.avma = 0x604000, .stdio_owner_tid = 103, .is_shared = true, .owner_pid = 17, .owner_process_name = "holder"}};
  capture.fds = {{.fd = 0, .name = "pipe:[5]", .other_end = 4},
                 {.fd = 7, .name = "anon_inode:[eventpoll]", .watched_count = 40, .watched = {1, 2}},
                 {.fd = 9}};
  capture.file_locks = {
      {.fd = 9, .kind = FileLockKind::kRecord, .held_as = FileLockKind::kOpenFile, .is_read_lock = true, .is_own = true},
      {.fd = 7,
       .holder = {17, "holder"},
       .runs = true,
       .still_holds = StillHolds::kNo,
       .more_readers = 3,
       .cycle = {{17, "holder"}, {18, ""}}}};
  auto executable = Module::Open(Fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), "/proc/self/exe");
  Mapping code{.start_avma = 0x400000,
               .end_avma = 0x500000,
               .file_offset = 0x1000,
               .readable = true,
               .writable = false,
               .executable = true,
               .path = "/srv/checkout",
               .device = 7,
               .inode = 8,
               .module = executable.value(),
               .bias = 0x1234};
  Mapping heap{.start_avma = 0x600000,
               .end_avma = 0x700000,
               .file_offset = 0,
               .readable = true,
               .writable = true,
               .executable = false,
               .path = "[heap]"};
  capture.map = std::make_shared<const AddressMap>(std::vector{code, heap});
  return capture;
}

void ExpectEqual(const Capture& a, const Capture& b) {
  EXPECT_EQ(a.process.id, b.process.id);
  EXPECT_EQ(a.process.pid, b.process.pid);
  EXPECT_EQ(a.process.uid, b.process.uid);
  EXPECT_EQ(a.process.abi_version, b.process.abi_version);
  EXPECT_EQ(a.process.display_name, b.process.display_name);
  EXPECT_EQ(a.process.executable, b.process.executable);
  EXPECT_EQ(a.process.argv0, b.process.argv0);
  EXPECT_EQ(a.process.hostname, b.process.hostname);
  EXPECT_EQ(a.process.start_wall_ns, b.process.start_wall_ns);
  EXPECT_EQ(a.process.connect_wall_ns, b.process.connect_wall_ns);
  EXPECT_EQ(a.process.thread_count, b.process.thread_count);
  EXPECT_EQ(a.process.share, b.process.share);
  EXPECT_EQ(a.process.limits, b.process.limits);
  EXPECT_EQ(a.process.resource_attributes, b.process.resource_attributes);
  EXPECT_EQ(a.trigger, b.trigger);
  EXPECT_EQ(a.begin_wall_ns, b.begin_wall_ns);
  EXPECT_EQ(a.duration_ns, b.duration_ns);
  EXPECT_EQ(a.partial, b.partial);
  EXPECT_EQ(a.memory_read_bytes, b.memory_read_bytes);
  EXPECT_EQ(a.dump_signal, b.dump_signal);
  EXPECT_EQ(a.notes, b.notes);
  ASSERT_EQ(a.threads.size(), b.threads.size());
  for (size_t i = 0; i < a.threads.size(); ++i) {
    EXPECT_EQ(a.threads[i].tid, b.threads[i].tid);
    EXPECT_EQ(a.threads[i].name, b.threads[i].name);
    EXPECT_EQ(a.threads[i].status, b.threads[i].status);
    EXPECT_EQ(a.threads[i].kernel_state, b.threads[i].kernel_state);
    EXPECT_EQ(a.threads[i].wait_channel, b.threads[i].wait_channel);
    EXPECT_EQ(a.threads[i].cpu_ns, b.threads[i].cpu_ns);
    EXPECT_EQ(a.threads[i].pause_ns, b.threads[i].pause_ns);
    EXPECT_EQ(a.threads[i].thread_self_avma, b.threads[i].thread_self_avma);
    EXPECT_EQ(a.threads[i].read_asleep, b.threads[i].read_asleep);
    EXPECT_EQ(a.threads[i].is_agent, b.threads[i].is_agent);
    EXPECT_EQ(a.threads[i].registers.known, b.threads[i].registers.known);
    EXPECT_EQ(a.threads[i].has_stack, b.threads[i].has_stack);
    EXPECT_EQ(a.threads[i].stack_truncated, b.threads[i].stack_truncated);
    EXPECT_EQ(a.threads[i].registers.value, b.threads[i].registers.value);
    EXPECT_EQ(a.threads[i].stack.base_avma(), b.threads[i].stack.base_avma());
    EXPECT_EQ(a.threads[i].stack.word_count(), b.threads[i].stack.word_count());
    EXPECT_EQ(a.threads[i].stack.masks(), b.threads[i].stack.masks());
    EXPECT_EQ(a.threads[i].stack.words(), b.threads[i].stack.words());
  }
  for (size_t i = 0; i < a.threads.size(); ++i) {
    EXPECT_EQ(a.threads[i].call, b.threads[i].call);
    EXPECT_EQ(a.threads[i].waited_fds, b.threads[i].waited_fds);
    EXPECT_EQ(a.threads[i].unmoved_ns, b.threads[i].unmoved_ns);
    EXPECT_EQ(a.threads[i].absent_ns, b.threads[i].absent_ns);
  }
  ASSERT_TRUE(a.hang && b.hang);
  EXPECT_EQ(a.hang->cause, b.hang->cause);
  EXPECT_EQ(a.hang->explanation, b.hang->explanation);
  EXPECT_EQ(a.hang->tid, b.hang->tid);
  EXPECT_EQ(a.hang->heartbeat, b.hang->heartbeat);
  EXPECT_EQ(a.hang->rule, b.hang->rule);
  EXPECT_EQ(a.hang->duration_ns, b.hang->duration_ns);
  EXPECT_EQ(a.futexes, b.futexes);
  EXPECT_EQ(a.fds, b.fds);
  EXPECT_EQ(a.file_locks, b.file_locks);
  ASSERT_EQ(a.map->mappings().size(), b.map->mappings().size());
  for (size_t i = 0; i < a.map->mappings().size(); ++i) {
    const Mapping &x = a.map->mappings()[i], &y = b.map->mappings()[i];
    EXPECT_EQ(x.start_avma, y.start_avma);
    EXPECT_EQ(x.end_avma, y.end_avma);
    EXPECT_EQ(x.file_offset, y.file_offset);
    EXPECT_EQ(x.readable, y.readable);
    EXPECT_EQ(x.writable, y.writable);
    EXPECT_EQ(x.executable, y.executable);
    EXPECT_EQ(x.path, y.path);
    EXPECT_EQ(x.device, y.device);
    EXPECT_EQ(x.inode, y.inode);
    EXPECT_EQ(x.bias, y.bias);
  }
}

TEST(RawCapture, ComesBackAsItWas) {
  const Capture capture = MakeCapture();
  const auto parsed = ParseRaw(SerializeRaw(capture));
  ASSERT_TRUE(parsed) << parsed.error().message;
  ExpectEqual(parsed->capture, capture);
}

TEST(RawCapture, KnowsBuildIdsButHasNoFiles) {
  const Capture capture = MakeCapture();
  const auto parsed = ParseRaw(SerializeRaw(capture));
  ASSERT_TRUE(parsed);
  const std::string& build_id = capture.map->mappings()[0].module->build_id();
  ASSERT_EQ(parsed->build_ids.size(), 2u);
  EXPECT_EQ(parsed->build_ids[0].size(), 2 * build_id.size());
  EXPECT_EQ(parsed->build_ids[1], "");
  EXPECT_EQ(parsed->capture.map->mappings()[0].module, nullptr);
}

ManagedFacts MakeManagedFacts() {
  ManagedFacts facts;
  facts.runtimes = {{Language::kPython, "CPython 3.11.7", ""}, {Language::kJava, "HotSpot 17", "too new"}};
  ManagedStack stack{.language = Language::kPython, .frames = {}, .interpreter_function = "_PyEval", .problem = "cut"};
  stack.frames = {{.function = "load\xff",
                   .file = "/srv/app.py",
                   .line = 12,
                   .anchor_avma = 0x7fff0010,
                   .pc_avma = 0x400010,
                   .boundary = false,
                   .inlined = true},
                  {.function = "<native>", .boundary = true},
                  {.function = "<module>", .file = "/srv/app.py", .line = 99}};
  facts.threads[102] = {.name = "worker", .holds_gil = true, .stacks = {stack, stack}, .jit_frames = {{1, 2, 3, 4}}};
  facts.threads[103] = {};
  facts.task_stacks = {stack};
  facts.native_task_stacks = {{{0x400010, 0x400020}, false}, {{0x7f0000000010}, true}};
  facts.tasks = {{.kind = ManagedTaskKind::kAsyncioTask,
                  .id = 7,
                  .name = "Task-7",
                  .state = "waiting",
                  .wait_reason = "sleep",
                  .wait_ns = 12,
                  .tid = 102,
                  .stack = 0,
                  .native_stacks = {1, 0},
                  .created_by = "main at app.py:3",
                  .creator_id = 1},
                 {.id = 8, .name = "Task-8", .state = "waiting", .wait_reason = "lock", .created_by = "main at app.py:3"},
                 {},
                 {.id = 9, .state = "waiting"}};
  facts.waits = {{ManagedLockKind::kGil, 101, 102, 0x5000, "the GIL"}};
  facts.reports = {{Language::kGo, "Go traceback", "panic: \xff\n"}};
  facts.notes = {"something is missing"};
  return facts;
}

void ExpectEqual(const ManagedStack& a, const ManagedStack& b) {
  EXPECT_EQ(a.language, b.language);
  EXPECT_EQ(a.interpreter_function, b.interpreter_function);
  EXPECT_EQ(a.problem, b.problem);
  ASSERT_EQ(a.frames.size(), b.frames.size());
  for (size_t i = 0; i < a.frames.size(); ++i) {
    EXPECT_EQ(a.frames[i].function, b.frames[i].function);
    EXPECT_EQ(a.frames[i].file, b.frames[i].file);
    EXPECT_EQ(a.frames[i].line, b.frames[i].line);
    EXPECT_EQ(a.frames[i].anchor_avma, b.frames[i].anchor_avma);
    EXPECT_EQ(a.frames[i].pc_avma, b.frames[i].pc_avma);
    EXPECT_EQ(a.frames[i].boundary, b.frames[i].boundary);
    EXPECT_EQ(a.frames[i].inlined, b.frames[i].inlined);
  }
}

void ExpectEqual(const ManagedThread& a, const ManagedThread& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.holds_gil, b.holds_gil);
  ASSERT_EQ(a.stacks.size(), b.stacks.size());
  for (size_t i = 0; i < a.stacks.size(); ++i) ExpectEqual(a.stacks[i], b.stacks[i]);
  ASSERT_EQ(a.jit_frames.size(), b.jit_frames.size());
  for (size_t i = 0; i < a.jit_frames.size(); ++i) {
    EXPECT_EQ(a.jit_frames[i].pc_avma, b.jit_frames[i].pc_avma);
    EXPECT_EQ(a.jit_frames[i].sp_avma, b.jit_frames[i].sp_avma);
    EXPECT_EQ(a.jit_frames[i].cfa_avma, b.jit_frames[i].cfa_avma);
    EXPECT_EQ(a.jit_frames[i].caller_rbp, b.jit_frames[i].caller_rbp);
  }
}

void ExpectEqual(const ManagedTask& a, const ManagedTask& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.wait_reason, b.wait_reason);
  EXPECT_EQ(a.wait_ns, b.wait_ns);
  EXPECT_EQ(a.tid, b.tid);
  EXPECT_EQ(a.stack, b.stack);
  EXPECT_EQ(a.native_stacks, b.native_stacks);
  EXPECT_EQ(a.created_by, b.created_by);
  EXPECT_EQ(a.creator_id, b.creator_id);
}

TEST(RawCapture, KeepsWhatRuntimesSaid) {
  Capture capture = MakeCapture();
  const ManagedFacts facts = capture.managed = MakeManagedFacts();
  const auto parsed = ParseRaw(SerializeRaw(capture));
  ASSERT_TRUE(parsed) << parsed.error().message;
  const ManagedFacts& read = parsed->capture.managed;
  ASSERT_EQ(read.runtimes.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.runtimes[i].language, facts.runtimes[i].language);
    EXPECT_EQ(read.runtimes[i].name, facts.runtimes[i].name);
    EXPECT_EQ(read.runtimes[i].problem, facts.runtimes[i].problem);
  }
  ASSERT_EQ(read.threads.size(), 2u);
  for (int32_t tid : {102, 103}) ExpectEqual(read.threads.at(tid), facts.threads.at(tid));
  ASSERT_EQ(read.task_stacks.size(), 1u);
  ExpectEqual(read.task_stacks[0], facts.task_stacks[0]);
  ASSERT_EQ(read.native_task_stacks.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.native_task_stacks[i].return_avmas, facts.native_task_stacks[i].return_avmas);
    EXPECT_EQ(read.native_task_stacks[i].cut, facts.native_task_stacks[i].cut);
  }
  ASSERT_EQ(read.tasks.size(), facts.tasks.size());
  for (size_t i = 0; i < facts.tasks.size(); ++i) ExpectEqual(read.tasks[i], facts.tasks[i]);
  ASSERT_EQ(read.waits.size(), 1u);
  EXPECT_EQ(read.waits[0].kind, ManagedLockKind::kGil);
  EXPECT_EQ(read.waits[0].waiter_tid, 101);
  EXPECT_EQ(read.waits[0].owner_tid, 102);
  EXPECT_EQ(read.waits[0].lock_avma, 0x5000u);
  EXPECT_EQ(read.waits[0].lock, "the GIL");
  ASSERT_EQ(read.reports.size(), 1u);
  EXPECT_EQ(read.reports[0].language, Language::kGo);
  EXPECT_EQ(read.reports[0].title, "Go traceback");
  EXPECT_EQ(read.reports[0].text, "panic: \xff\n");
  EXPECT_EQ(read.notes, facts.notes);
}

TEST(RawCapture, WhoseRuntimesSayWhatIsNotThereIsRefused) {
  const auto refused = [](const std::function<void(store::RawManaged*)>& spoil) {
    Capture capture = MakeCapture();
    capture.managed = MakeManagedFacts();
    store::RawCapture raw;
    EXPECT_TRUE(raw.ParseFromString(SerializeRaw(capture)));
    spoil(raw.mutable_managed());
    const auto parsed = ParseRaw(raw.SerializeAsString());
    return !parsed && parsed.error().code == Code::kDataLoss;
  };
  EXPECT_FALSE(refused([](store::RawManaged*) {}));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->clear_texts(); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->add_notes(1000); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_tasks(0)->set_stack(1); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_tasks(0)->set_stack(-2); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_tasks(0)->set_kind(0); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_tasks(0)->add_native_stacks(2); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_tasks(0)->add_native_stacks(UINT32_MAX); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_waits(0)->set_kind(1); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_runtimes(0)->set_language(9); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_frame_lines()->RemoveLast(); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->add_frame_lines(1); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->set_frame_files(0, 1000); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_task_stacks(0)->set_frame_count(2); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_task_stacks(0)->set_frame_count(4); }));
  EXPECT_TRUE(refused([](store::RawManaged* raw) { raw->mutable_task_stacks(0)->set_frame_count(UINT32_MAX); }));
}

TEST(RawCapture, MayBeEmpty) {
  const auto parsed = ParseRaw(SerializeRaw({}));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_TRUE(parsed->capture.threads.empty());
  EXPECT_TRUE(parsed->capture.map->mappings().empty());
}

// What a stackd wrote that knew nothing of waits.
TEST(RawCapture, MayHaveBeenWrittenBeforeThereWereWaits) {
  Capture capture = MakeCapture();
  for (ThreadCapture& thread : capture.threads) {
    thread.call.reset();
    thread.waited_fds.clear();
    thread.unmoved_ns = thread.absent_ns = -1;
  }
  capture.futexes.clear();
  capture.fds.clear();
  capture.file_locks.clear();
  capture.hang.reset();
  const std::string bytes = SerializeRaw(capture);
  store::RawCapture raw;
  ASSERT_TRUE(raw.ParseFromString(bytes));
  EXPECT_TRUE(raw.calls().empty() && raw.waited_fds().empty() && raw.unmoved().empty() && raw.absent().empty() &&
              !raw.has_hang());
  const auto parsed = ParseRaw(bytes);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->capture.threads.size(), capture.threads.size());
  EXPECT_EQ(parsed->capture.threads[0].call, std::nullopt);
  EXPECT_EQ(parsed->capture.threads[0].unmoved_ns, -1);
  EXPECT_FALSE(parsed->capture.hang.has_value());
}

TEST(RawCapture, WhoseWaitsAreOfThreadsThatAreNotThereIsRefused) {
  for (auto field : {&store::RawCapture::mutable_calls, &store::RawCapture::mutable_waited_fds,
                     &store::RawCapture::mutable_unmoved, &store::RawCapture::mutable_absent}) {
    store::RawCapture raw;
    ASSERT_TRUE(raw.ParseFromString(SerializeRaw(MakeCapture())));
    (raw.*field)()->at(0) = 5;  // it has five
    EXPECT_FALSE(ParseRaw(raw.SerializeAsString()));
  }
}

TEST(RawCapture, WhoseFileLockIsOfNoKindIsRefused) {
  for (auto set : {&store::RawFileLock::set_kind, &store::RawFileLock::set_held_as, &store::RawFileLock::set_still_holds}) {
    store::RawCapture raw;
    ASSERT_TRUE(raw.ParseFromString(SerializeRaw(MakeCapture())));
    (raw.mutable_file_locks(1)->*set)(4);
    EXPECT_FALSE(ParseRaw(raw.SerializeAsString()));
  }
}

TEST(RawCapture, WhoseHangHasNoCauseIsRefused) {
  store::RawCapture raw;
  ASSERT_TRUE(raw.ParseFromString(SerializeRaw(MakeCapture())));
  for (int32_t cause : {0, 6, -1}) {
    raw.mutable_hang()->set_cause(cause);
    EXPECT_FALSE(ParseRaw(raw.SerializeAsString()));
  }
}

TEST(RawCapture, IsRefusedWhenCutAnywhere) {
  const std::string bytes = SerializeRaw(MakeCapture());
  int whole = 0;
  for (size_t size_bytes = 0; size_bytes < bytes.size(); ++size_bytes) {
    // A cut between two fields leaves a shorter message that is well-formed: then tables are missing, or nothing but
    // what may be missing.
    if (ParseRaw(std::string_view(bytes).substr(0, size_bytes))) ++whole;
  }
  EXPECT_LE(whole, 23);
}

TEST(RawCapture, SurvivesChangedBytes) {
  const std::string bytes = SerializeRaw(MakeCapture());
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = bytes;
    for (uint32_t n = random() % 4 + 1; n > 0; --n) changed[random() % changed.size()] = static_cast<char>(random());
    const auto parsed = ParseRaw(changed);
    if (!parsed) continue;
    for (const ThreadCapture& thread : parsed->capture.threads) {
      for (uint64_t word = 0; word < thread.stack.word_count(); ++word) {
        EXPECT_TRUE(thread.stack.Read(thread.stack.base_avma() + 8 * word)) << "within the copy";
      }
    }
    EXPECT_EQ(parsed->build_ids.size(), parsed->capture.map->mappings().size());
  }
}

TEST(RawCapture, OfALaterVersionIsRefused) {
  std::string bytes = SerializeRaw({});
  ASSERT_EQ(bytes[0], 0x08) << "field 1, a number";
  bytes[1] = 99;
  const auto parsed = ParseRaw(bytes);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, Code::kFailedPrecondition);
  EXPECT_NE(parsed.error().message.find("newer stackd"), std::string::npos);
}

TEST(RawCapture, OfAnEarlierVersionIsRefused) {
  store::RawCapture raw;
  ASSERT_TRUE(raw.ParseFromString(SerializeRaw(MakeCapture())));
  raw.set_version(1);
  const auto parsed = ParseRaw(raw.SerializeAsString());
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, Code::kFailedPrecondition);
  EXPECT_NE(parsed.error().message.find("older stackd"), std::string::npos);
}

}  // namespace
}  // namespace stackd

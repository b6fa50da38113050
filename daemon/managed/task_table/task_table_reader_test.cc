#include "daemon/managed/task_table/task_table_reader.h"

#include <gtest/gtest.h>
#include <string.h>

#include <string>
#include <string_view>
#include <vector>

#include "stackd/wire.h"

namespace stackd {
namespace {

constexpr uint64_t kWhole = STACKD_TASK_STACK_WHOLE, kCut = STACKD_TASK_STACK_CUT;

template <typename T>
void Append(const T& value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Head(uint64_t there_are, uint32_t version = STACKD_TASK_TABLE_VERSION) {
  stackd_task_table head{};
  head.version = version;
  head.language = static_cast<uint32_t>(Language::kRust);
  head.there_are = there_are;
  strcpy(head.runtime, "tokio");
  std::string bytes;
  Append(head, &bytes);
  return bytes;
}

struct Task {
  uint64_t id = 0;
  uint32_t state = STACKD_TASK_WAITS;
  int32_t tid = 0;
  std::vector<uint64_t> words;
  std::string name = "app::serve::{{closure}}";
  std::string place = "src/app.rs:31";
};

std::string Record(const Task& task) {
  stackd_task_record record{};
  record.state = task.state;
  record.id = task.id;
  record.tid = task.tid;
  record.word_count = static_cast<uint32_t>(task.words.size());
  record.name_bytes = static_cast<uint32_t>(task.name.size());
  record.place_bytes = static_cast<uint32_t>(task.place.size());
  std::string rest;
  for (uint64_t word : task.words) Append(word, &rest);
  rest += task.name + task.place;
  rest.resize((rest.size() + 7) / 8 * 8);
  record.size_bytes = static_cast<uint32_t>(sizeof(record) + rest.size());
  std::string bytes;
  Append(record, &bytes);
  return bytes + rest;
}

ManagedFacts Read(std::string table, const std::vector<int32_t>& tids = {}, bool frames_only = false) {
  Capture capture;
  for (int32_t tid : tids) capture.threads.emplace_back().tid = tid;
  capture.task_table = std::move(table);
  ManagedFacts facts;
  TaskTableReader().Read({.capture = capture, .memory = nullptr, .deadline_ns = 0, .frames_only = frames_only}, &facts);
  return facts;
}

TEST(TaskTableReader, TellsWhatEachTaskWaitsIn) {
  const ManagedFacts facts = Read(Head(2) + Record({.id = 7, .words = {0x10, 0x20, kWhole, 0x30, kCut}}) +
                                      Record({.id = 8, .state = STACKD_TASK_RUNS, .tid = 41, .words = {}}),
                                  {40, 41});
  ASSERT_EQ(facts.tasks.size(), 2);
  const ManagedTask& waits = facts.tasks[0];
  EXPECT_EQ(waits.kind, ManagedTaskKind::kTokioTask);
  EXPECT_EQ(waits.id, 7);
  EXPECT_EQ(waits.name, "app::serve::{{closure}}");
  EXPECT_EQ(waits.created_by, "src/app.rs:31");
  EXPECT_EQ(waits.state, "waiting");
  EXPECT_EQ(waits.stack, -1);
  ASSERT_EQ(waits.native_stacks, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(facts.native_task_stacks[0].return_avmas, (std::vector<uint64_t>{0x10, 0x20}));
  EXPECT_FALSE(facts.native_task_stacks[0].cut);
  EXPECT_EQ(facts.native_task_stacks[1].return_avmas, (std::vector<uint64_t>{0x30}));
  EXPECT_TRUE(facts.native_task_stacks[1].cut);
  EXPECT_EQ(facts.tasks[1].state, "running");
  EXPECT_EQ(facts.tasks[1].tid, 41);
  ASSERT_EQ(facts.runtimes.size(), 1);
  EXPECT_EQ(facts.runtimes[0].name, "tokio");
  EXPECT_EQ(facts.runtimes[0].language, Language::kRust);
  EXPECT_TRUE(facts.notes.empty());
}

TEST(TaskTableReader, KeepsEqualStacksOnce) {
  std::string table = Head(1000);
  for (uint64_t id = 1; id <= 1000; id++) table += Record({.id = id, .words = {0x10, 0x20, kWhole}});
  const ManagedFacts facts = Read(table);
  EXPECT_EQ(facts.tasks.size(), 1000);
  EXPECT_EQ(facts.native_task_stacks.size(), 1);
  EXPECT_EQ(facts.tasks.back().native_stacks, (std::vector<int32_t>{0}));
}

TEST(TaskTableReader, SaysWhatIsMissing) {
  const ManagedFacts facts = Read(Head(50) + Record({.id = 1, .state = STACKD_TASK_NOT_ASKED, .words = {}}) +
                                  Record({.id = 2, .words = {5, kWhole}}));
  ASSERT_EQ(facts.notes.size(), 2);
  EXPECT_EQ(facts.notes[0], "tokio has 50 tasks: 2 are listed");
  EXPECT_EQ(facts.notes[1], "1 tasks of tokio have no stack: there was no time to ask where they wait");
}

TEST(TaskTableReader, ReadsNothingWhereNobodyTold) {
  const ManagedFacts facts = Read("");
  EXPECT_TRUE(facts.tasks.empty() && facts.runtimes.empty() && facts.notes.empty());
  EXPECT_TRUE(Read(Head(1) + Record({.id = 1, .words = {}}), {}, /*frames_only=*/true).tasks.empty());
}

TEST(TaskTableReader, TakesNoThreadThatIsNotInTheDump) {
  EXPECT_EQ(Read(Head(1) + Record({.state = STACKD_TASK_RUNS, .tid = 99, .words = {}}), {41}).tasks.at(0).tid, 0);
  EXPECT_EQ(Read(Head(1) + Record({.state = STACKD_TASK_WAITS, .tid = 41, .words = {}}), {41}).tasks.at(0).tid, 0);
}

TEST(TaskTableReader, TakesNoTableThatItDoesNotKnow) {
  for (const std::string& table : {Head(1, 2), Head(1).substr(0, 47), std::string("x")}) {
    const ManagedFacts facts = Read(table);
    EXPECT_TRUE(facts.tasks.empty());
    EXPECT_EQ(facts.notes.size(), 1);
  }
}

// A table cut anywhere gives the records before the cut, and says that there were more.
TEST(TaskTableReader, TakesTheRecordsBeforeDamage) {
  const std::string first = Record({.id = 1, .words = {5, kWhole}}), second = Record({.id = 2, .words = {6, kWhole}});
  const std::string table = Head(2) + first + second;
  for (size_t size = Head(2).size(); size < table.size(); size++) {
    const ManagedFacts facts = Read(table.substr(0, size));
    const size_t whole = size < Head(2).size() + first.size() ? 0 : 1;
    EXPECT_EQ(facts.tasks.size(), whole) << size;
    EXPECT_EQ(facts.notes.size(), 1) << size;
  }
}

// Lengths that do not fit what is there.
TEST(TaskTableReader, BelievesNoLength) {
  const Task task{.id = 1, .words = {5, kWhole}};
  const std::vector<std::pair<size_t, uint32_t>> lies = {
      {offsetof(stackd_task_record, size_bytes), 0},
      {offsetof(stackd_task_record, size_bytes), 31},
      {offsetof(stackd_task_record, size_bytes), 33},
      {offsetof(stackd_task_record, size_bytes), UINT32_MAX - 7},
      {offsetof(stackd_task_record, word_count), UINT32_MAX},
      {offsetof(stackd_task_record, word_count), 1u << 29},
      {offsetof(stackd_task_record, name_bytes), UINT32_MAX},
      {offsetof(stackd_task_record, name_bytes), 64},
      {offsetof(stackd_task_record, place_bytes), UINT32_MAX},
      {offsetof(stackd_task_record, place_bytes), 64},
      {offsetof(stackd_task_record, state), 0},
      {offsetof(stackd_task_record, state), 6},
  };
  for (const auto& [offset, value] : lies) {
    std::string record = Record(task);
    memcpy(record.data() + offset, &value, sizeof(value));
    const ManagedFacts facts = Read(Head(1) + record);
    EXPECT_TRUE(facts.tasks.empty()) << offset << " " << value;
    EXPECT_EQ(facts.notes.size(), 1) << offset << " " << value;
  }
}

TEST(TaskTableReader, MakesTextsPrintableAndShort) {
  const ManagedFacts facts =
      Read(Head(1) + Record({.words = {}, .name = "a\x1b[2J\n" + std::string(5000, 'x'), .place = "\xff\xfe"}));
  EXPECT_LE(facts.tasks.at(0).name.size(), 400);
  EXPECT_EQ(facts.tasks.at(0).name.find('\x1b'), std::string::npos);
  EXPECT_EQ(facts.tasks.at(0).name.find('\n'), std::string::npos);
  EXPECT_EQ(facts.tasks.at(0).created_by.find('\xff'), std::string::npos);
}

TEST(TaskTableReader, IsBounded) {
  std::string many = Head(TaskTableReader::kMaxTasks + 5);
  for (size_t i = 0; i < TaskTableReader::kMaxTasks + 5; i++)
    many += Record({.id = i, .words = {}, .name = "", .place = ""});
  const ManagedFacts listed = Read(many);
  EXPECT_EQ(listed.tasks.size(), TaskTableReader::kMaxTasks);
  EXPECT_EQ(listed.notes.at(0), "tokio has 20005 tasks: 20000 are listed");

  std::string deep = Head(600);
  for (uint64_t i = 0; i < 600; i++) {
    Task task{.id = i, .words = std::vector<uint64_t>(1000, 2 + i)};
    task.words.push_back(kWhole);
    deep += Record(task);
  }
  const ManagedFacts cut = Read(deep);
  EXPECT_EQ(cut.tasks.size(), 600);
  EXPECT_EQ(cut.native_task_stacks.size(), 500);
  EXPECT_EQ(cut.notes.at(0), "100 stacks of tasks are left out: there were too many");

  Task wide{.id = 1, .words = {}};
  for (uint64_t i = 0; i < 5000; i++) wide.words.insert(wide.words.end(), {2 + i, kWhole});
  EXPECT_LE(Read(Head(1) + Record(wide)).tasks.at(0).native_stacks.size(), 64);
}

}  // namespace
}  // namespace stackd

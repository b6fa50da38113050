#include "daemon/store/dump_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <thread>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// A folder that goes away with its files.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = std::string(testing::TempDir()) + "/store-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { EXPECT_EQ(system(("rm -rf '" + path_ + "'").c_str()), 0); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class DumpStoreTest : public testing::Test {
 protected:
  std::unique_ptr<DumpStore> Open(DumpStoreOptions options = {}) {
    if (options.file.empty()) options.file = file_;
    auto store = DumpStore::Open(options);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }

  TemporaryFolder folder_;
  const std::string file_ = folder_.File("store.db");
};

v1::Dump MakeDump(int number, const std::string& process = "4711-100", int threads = 3) {
  v1::Dump dump;
  dump.set_name("processes/" + process + "/dumps/d" + std::to_string(number));
  dump.mutable_process()->set_name("processes/" + process);
  dump.mutable_process()->set_display_name("checkout-" + process);
  dump.set_trigger(v1::Dump::REQUEST);
  dump.set_state(v1::Dump::COMPLETE);
  dump.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond);
  dump.mutable_thread_counts()->set_listed(threads);
  dump.add_notes("a note");
  for (int i = 0; i < threads; ++i) {
    v1::Thread* thread = dump.add_threads();
    thread->set_tid(i + 1);
    thread->set_name("worker");
    dump.add_stacks()->add_frames()->set_function("f" + std::to_string(i));
  }
  return dump;
}

// A dump of about as many bytes in the store as given: random text cannot be compressed.
v1::Dump MakeLargeDump(int number, size_t size_bytes) {
  v1::Dump dump = MakeDump(number);
  std::string& text = *dump.add_stacks()->add_frames()->mutable_function();
  uint32_t random = number + 1;
  while (text.size() < size_bytes) text += static_cast<char>(' ' + (random = random * 1664525 + 1013904223) % 95);
  return dump;
}

void Put(DumpStore* store, const v1::Dump& dump) {
  const auto put = store->Put(dump);
  ASSERT_TRUE(put) << put.error().message;
}

std::vector<std::string> NamesOf(const DumpPage& page) {
  std::vector<std::string> names;
  for (const v1::Dump& dump : page.dumps) names.push_back(dump.name());
  return names;
}

TEST_F(DumpStoreTest, GivesBackWhatWasPut) {
  auto store = Open();
  v1::Dump dump = MakeDump(1);
  Put(store.get(), dump);
  const auto got = store->Get(dump.name());
  ASSERT_TRUE(got);
  dump.set_stored(true);
  EXPECT_EQ(got->SerializeAsString(), dump.SerializeAsString());
  EXPECT_EQ(store->dump_count(), 1);
  EXPECT_GT(store->bytes(), 0);
}

std::shared_ptr<const v1::Dump> PutShared(DumpStore* store, v1::Dump dump) {
  dump.set_stored(true);
  auto shared = std::make_shared<const v1::Dump>(std::move(dump));
  auto packed = DumpStore::Pack(shared);
  EXPECT_TRUE(packed && store->Put(std::move(*packed)));
  return shared;
}

TEST_F(DumpStoreTest, FindsTheLastDumpsWithoutReadingThem) {
  auto store = Open();
  const auto first = PutShared(store.get(), MakeDump(1));
  EXPECT_EQ(store->Find(first->name()).value(), first);
  for (int i = 2; i < 10; ++i) PutShared(store.get(), MakeDump(i));
  const auto read = store->Find(first->name()).value();
  EXPECT_NE(read, first) << "only the last few are kept";
  EXPECT_EQ(read->SerializeAsString(), first->SerializeAsString());
}

TEST_F(DumpStoreTest, FindsNoDumpThatWasDeletedOrEvicted) {
  auto store = Open({.max_dumps = 1});
  const auto evicted = PutShared(store.get(), MakeDump(1));
  const auto deleted = PutShared(store.get(), MakeDump(2));
  EXPECT_EQ(store->Find(evicted->name()).error().code, Code::kNotFound);
  ASSERT_TRUE(store->Delete(deleted->name()));
  EXPECT_EQ(store->Find(deleted->name()).error().code, Code::kNotFound);
}

TEST_F(DumpStoreTest, KeepsNoLargeDumpInMemory) {
  auto store = Open();
  v1::Dump large = MakeDump(1);
  large.add_stacks()->add_frames()->set_function(std::string(5 << 20, 'f'));
  const auto put = PutShared(store.get(), large);
  const auto found = store->Find(put->name()).value();
  EXPECT_NE(found, put);
  EXPECT_EQ(found->SerializeAsString(), put->SerializeAsString());
}

TEST_F(DumpStoreTest, KeepsDumpsWhenTheDaemonEnds) {
  Put(Open().get(), MakeDump(1));
  auto store = Open();
  EXPECT_EQ(store->dump_count(), 1);
  EXPECT_GT(store->bytes(), 0);
  EXPECT_TRUE(store->Get(MakeDump(1).name()));
}

TEST_F(DumpStoreTest, ServesADumpThatWasNeverFinishedAsPartial) {
  v1::Dump header = MakeDump(1);
  {
    auto store = Open();
    ASSERT_TRUE(store->PutRaw(header, "raw bytes"));
    const auto unfinished = store->Get(header.name());
    ASSERT_TRUE(unfinished);
    EXPECT_EQ(unfinished->state(), v1::Dump::PARTIAL);
    EXPECT_NE(unfinished->notes(1).find("not unwound yet"), std::string::npos) << unfinished->notes(1);
  }
  auto store = Open();
  const auto unfinished = store->Get(header.name());
  ASSERT_TRUE(unfinished);
  EXPECT_EQ(unfinished->state(), v1::Dump::PARTIAL);
  EXPECT_EQ(unfinished->thread_counts().listed(), 3);
  EXPECT_EQ(unfinished->threads_size(), 0);
  EXPECT_NE(unfinished->notes(1).find("the daemon ended before"), std::string::npos) << unfinished->notes(1);
  EXPECT_EQ(store->GetRaw(header.name()).value(), "raw bytes");
  EXPECT_EQ(store->List({})->dumps[0].state(), v1::Dump::PARTIAL);
}

TEST_F(DumpStoreTest, KeepsTheRawCaptureOfAFinishedDump) {
  auto store = Open();
  const v1::Dump dump = MakeDump(1);
  ASSERT_TRUE(store->PutRaw(dump, std::string(100'000, 'r')));
  Put(store.get(), dump);
  EXPECT_EQ(store->Get(dump.name())->state(), v1::Dump::COMPLETE);
  EXPECT_EQ(store->GetRaw(dump.name()).value(), std::string(100'000, 'r'));
  EXPECT_EQ(store->dump_count(), 1);
  EXPECT_EQ(store->PutRaw(dump, "other").error().code, Code::kAlreadyExists);
}

TEST_F(DumpStoreTest, TellsTheNewestFinishedDumpFirst) {
  auto store = Open();
  EXPECT_EQ(store->Newest().error().reason, "DUMP_NOT_FOUND");
  ASSERT_TRUE(store->PutRaw(MakeDump(1), "raw"));
  EXPECT_EQ(store->Newest().value(), MakeDump(1).name()) << "an unfinished one is better than none";
  Put(store.get(), MakeDump(2));
  ASSERT_TRUE(store->PutRaw(MakeDump(3), "raw"));
  EXPECT_EQ(store->Newest().value(), MakeDump(2).name());
}

TEST_F(DumpStoreTest, SaysWhichNamesItKnows) {
  auto store = Open();
  for (const char* name : {"", "x", "processes/1", "processes/1/dumps/", "processes//dumps/1", "processes/1/dumps/1/2",
                           "processes/1/dumps/../x", "dumps/1", "processes/1/dumps/a b", "processes/-\n/dumps/1"}) {
    const auto got = store->Get(name);
    ASSERT_FALSE(got) << name;
    EXPECT_EQ(got.error().reason, "BAD_NAME") << name;
    EXPECT_EQ(got.error().code, Code::kInvalidArgument);
    EXPECT_NE(got.error().message.find("processes/{process}/dumps/{dump}"), std::string::npos);
  }
  EXPECT_EQ(store->Get("processes/1/dumps/1").error().reason, "DUMP_NOT_FOUND");
  EXPECT_EQ(store->GetRaw("processes/1/dumps/1").error().code, Code::kNotFound);
  EXPECT_EQ(store->Delete("processes/1/dumps/1").error().reason, "DUMP_NOT_FOUND");
  EXPECT_EQ(store->List({.parent = "nonsense"}).error().reason, "BAD_NAME");
}

TEST_F(DumpStoreTest, DeletesADumpWithAllThatBelongsToIt) {
  auto store = Open();
  const v1::Dump dump = MakeDump(1);
  ASSERT_TRUE(store->PutRaw(dump, "raw"));
  Put(store.get(), dump);
  ASSERT_TRUE(store->Delete(dump.name()));
  EXPECT_EQ(store->Get(dump.name()).error().code, Code::kNotFound);
  EXPECT_EQ(store->GetRaw(dump.name()).error().code, Code::kNotFound);
  EXPECT_EQ(store->dump_count(), 0);
  EXPECT_EQ(store->bytes(), 0);
}

TEST_F(DumpStoreTest, ListsTheNewestFirstWithoutThreads) {
  auto store = Open();
  for (int i = 0; i < 3; ++i) Put(store.get(), MakeDump(i));
  const auto page = store->List({});
  ASSERT_TRUE(page);
  EXPECT_EQ(NamesOf(*page), (std::vector{MakeDump(2).name(), MakeDump(1).name(), MakeDump(0).name()}));
  EXPECT_EQ(page->next_page_token, "");
  EXPECT_EQ(page->dumps[0].threads_size() + page->dumps[0].stacks_size() + page->dumps[0].groups_size(), 0);
  EXPECT_EQ(page->dumps[0].notes_size(), 1);
  EXPECT_TRUE(page->dumps[0].stored());
}

TEST_F(DumpStoreTest, ListsDumpsOfAHundredThousandTasksWithoutThem) {
  auto store = Open();
  v1::Dump dump = MakeDump(1);
  for (int i = 0; i < 100'000; ++i) dump.add_tasks()->set_id(static_cast<uint64_t>(i));
  dump.set_task_count(dump.tasks_size());
  dump.add_reports()->add_lines("a traceback");
  Put(store.get(), dump);
  const auto page = store->List({});
  ASSERT_EQ(page->dumps.size(), 1u);
  EXPECT_EQ(page->dumps[0].task_count(), 100'000);
  EXPECT_LT(page->dumps[0].ByteSizeLong(), 1000u);
  EXPECT_EQ(store->Get(dump.name())->tasks_size(), 100'000);
}

TEST_F(DumpStoreTest, ListsThoseOfAProcessOrAName) {
  auto store = Open();
  Put(store.get(), MakeDump(1, "1-1"));
  Put(store.get(), MakeDump(1, "2-2"));
  EXPECT_EQ(store->List({.parent = "processes/1-1"})->dumps.size(), 1u);
  EXPECT_EQ(store->List({.parent = "processes/-"})->dumps.size(), 2u);
  EXPECT_EQ(store->List({.parent = "processes/9-9"})->dumps.size(), 0u);
  EXPECT_EQ(store->List({.filter = "out-2"})->dumps.size(), 1u);
  EXPECT_EQ(store->List({.filter = "%"})->dumps.size(), 0u) << "a filter is no pattern";
}

TEST_F(DumpStoreTest, PagesMissNothingAndRepeatNothingWhileDumpsCome) {
  auto store = Open();
  for (int i = 0; i < 25; ++i) Put(store.get(), MakeDump(i));
  std::vector<std::string> seen;
  DumpQuery query{.page_size = 10};
  for (int page_number = 0;; ++page_number) {
    const auto page = store->List(query);
    ASSERT_TRUE(page);
    for (const std::string& name : NamesOf(*page)) seen.push_back(name);
    if (page->next_page_token.empty()) break;
    query.page_token = page->next_page_token;
    Put(store.get(), MakeDump(100 + page_number));
  }
  ASSERT_EQ(seen.size(), 25u);
  for (int i = 0; i < 25; ++i) EXPECT_EQ(seen[i], MakeDump(24 - i).name());
}

TEST_F(DumpStoreTest, RefusesPageTokensOfOtherQueriesAndChangedOnes) {
  auto store = Open();
  for (int i = 0; i < 3; ++i) Put(store.get(), MakeDump(i));
  const std::string token = store->List({.page_size = 1})->next_page_token;
  ASSERT_NE(token, "");
  EXPECT_TRUE(store->List({.page_size = 2, .page_token = token})) << "the size of pages may change";

  std::vector<DumpQuery> refused = {{.page_token = "nonsense"},
                                    {.page_token = token + "0"},
                                    {.page_token = std::string(token.size(), '0')},
                                    {.parent = "processes/4711-100", .page_token = token},
                                    {.filter = "c", .page_token = token}};
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == '1' ? '2' : '1';
    refused.push_back({.page_token = changed});
  }
  for (const DumpQuery& query : refused) {
    const auto page = store->List(query);
    ASSERT_FALSE(page) << query.page_token;
    EXPECT_EQ(page.error().reason, "BAD_PAGE_TOKEN");
  }
  auto other = Open({.file = folder_.File("other.db")});
  for (int i = 0; i < 3; ++i) Put(other.get(), MakeDump(i));
  EXPECT_EQ(other->List({.page_token = token}).error().reason, "BAD_PAGE_TOKEN") << "of another store";
}

TEST_F(DumpStoreTest, BoundsThePageSize) {
  auto store = Open();
  for (int i = 0; i < 51; ++i) Put(store.get(), MakeDump(i));
  EXPECT_EQ(store->List({})->dumps.size(), 50u);
  EXPECT_EQ(store->List({.page_size = 1'000'000})->dumps.size(), 51u);
  EXPECT_EQ(store->List({.page_size = -1}).error().reason, "BAD_PAGE_SIZE");
}

TEST_F(DumpStoreTest, EndsAPageEarlyRatherThanMakeAnAnswerTooLarge) {
  auto store = Open();
  for (int i = 0; i < 5; ++i) {
    v1::Dump dump = MakeDump(i);
    dump.add_notes(std::string(1 << 20, 'n'));
    Put(store.get(), dump);
  }
  const auto page = store->List({});
  ASSERT_TRUE(page);
  EXPECT_EQ(page->dumps.size(), 2u);
  EXPECT_EQ(store->List({.page_token = page->next_page_token})->dumps[0].name(), MakeDump(2).name());
}

TEST_F(DumpStoreTest, EvictsTheOldestAboveTheCount) {
  auto store = Open({.max_dumps = 3});
  for (int i = 0; i < 10; ++i) Put(store.get(), MakeDump(i));
  EXPECT_EQ(NamesOf(*store->List({})), (std::vector{MakeDump(9).name(), MakeDump(8).name(), MakeDump(7).name()}));
  EXPECT_EQ(store->evicted_count(), 7);
  EXPECT_EQ(store->evictions().count, 7);
  EXPECT_EQ(store->dump_count(), 3);
}

TEST_F(DumpStoreTest, EvictsTheOldestAboveTheBytes) {
  auto store = Open({.max_bytes = 1'000'000});
  for (int i = 0; i < 10; ++i) {
    Put(store.get(), MakeLargeDump(i, 300'000));
    EXPECT_LE(store->bytes(), 1'000'000);
  }
  EXPECT_GE(store->dump_count(), 3);
  EXPECT_TRUE(store->Get(MakeDump(9).name()));
}

TEST_F(DumpStoreTest, KeepsTheNewestDumpHoweverLarge) {
  auto store = Open({.max_bytes = 1});
  Put(store.get(), MakeDump(1));
  Put(store.get(), MakeDump(2));
  EXPECT_EQ(NamesOf(*store->List({})), std::vector{MakeDump(2).name()});
}

TEST_F(DumpStoreTest, EvictsWhatIsTooOld) {
  auto store = Open({.max_age_seconds = 3600});
  v1::Dump old = MakeDump(1);
  old.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond - 3700);
  Put(store.get(), old);
  Put(store.get(), MakeDump(2));
  EXPECT_EQ(NamesOf(*store->List({})), std::vector{MakeDump(2).name()});
}

// --- Clocks that jump ---

constexpr int64_t kHour = 3600, kDay = 24 * kHour, kMonth = 30 * kDay;
int64_t g_wall_s = 0, g_boot_s = 0;

void Pass(int64_t seconds) {
  g_wall_s += seconds;
  g_boot_s += seconds;
}

class ClockJumps : public DumpStoreTest {
 protected:
  ClockJumps() {
    g_wall_s = 1'800'000'000;
    g_boot_s = 1000;
  }

  std::unique_ptr<DumpStore> Start() {
    return Open(
        {.max_age_seconds = kMonth,
         .clocks = {.wall_ns = [] { return g_wall_s * kNsPerSecond; }, .boot_ns = [] { return g_boot_s * kNsPerSecond; }}});
  }
  static void PutNow(DumpStore* store, int number) {
    v1::Dump dump = MakeDump(number);
    dump.mutable_create_time()->set_seconds(g_wall_s);
    Put(store, dump);
  }
};

TEST_F(ClockJumps, WhatGrowsOldIsEvicted) {
  auto store = Start();
  PutNow(store.get(), 1);
  Pass(kMonth + kDay);
  PutNow(store.get(), 2);
  EXPECT_EQ(store->evictions().age, 1);
}

TEST_F(ClockJumps, AJumpWhileItRunsEvictsNothing) {
  auto store = Start();
  PutNow(store.get(), 1);
  g_wall_s += 10 * 365 * kDay;
  PutNow(store.get(), 2);
  Pass(kHour);
  PutNow(store.get(), 3);
  g_wall_s -= 10 * 365 * kDay;
  PutNow(store.get(), 4);
  Pass(2 * kDay);
  PutNow(store.get(), 5);
  EXPECT_EQ(store->evictions().age, 0);
  EXPECT_EQ(store->dump_count(), 5);
}

TEST_F(ClockJumps, AWrongClockAtTheStartEvictsNothing) {
  PutNow(Start().get(), 1);
  g_wall_s += 60 * kDay;
  g_boot_s = 10;
  {
    auto store = Start();
    PutNow(store.get(), 2);
    Pass(kHour);
    PutNow(store.get(), 3);
    EXPECT_EQ(store->evictions().age, 0);
  }
  // Started again, it remembers.
  Pass(60);
  auto store = Start();
  PutNow(store.get(), 4);
  EXPECT_EQ(store->evictions().age, 0);
  EXPECT_EQ(store->dump_count(), 4);
}

TEST_F(ClockJumps, AClockThatGoesOnEvenlyForADayIsBelieved) {
  auto store = Start();
  PutNow(store.get(), 1);
  g_wall_s += 60 * kDay;
  PutNow(store.get(), 2);
  Pass(kDay - kHour);
  PutNow(store.get(), 3);
  EXPECT_EQ(store->evictions().age, 0);
  Pass(2 * kHour);
  PutNow(store.get(), 4);
  EXPECT_EQ(store->evictions().age, 1);
}

TEST_F(ClockJumps, AnEarlierVersionsFileTellsByItsNewestDumpWhenItWasWritten) {
  PutNow(Start().get(), 1);
  sqlite3* connection = nullptr;
  ASSERT_EQ(sqlite3_open(file_.c_str(), &connection), SQLITE_OK);
  ASSERT_EQ(
      sqlite3_exec(connection, "DROP TABLE retention_clock; ALTER TABLE dumps DROP COLUMN attempts; PRAGMA user_version=2",
                   nullptr, nullptr, nullptr),
      SQLITE_OK);
  sqlite3_close(connection);
  g_wall_s += 60 * kDay;
  auto store = Start();
  ASSERT_NE(store, nullptr);
  PutNow(store.get(), 2);
  EXPECT_EQ(store->evictions().age, 0);
}

// --- Attempts ---

TEST_F(DumpStoreTest, SetsAsideWhatEndedTheDaemonTwice) {
  const v1::Dump dump = MakeDump(1);
  ASSERT_TRUE(Open()->PutRaw(dump, "raw"));
  for (int attempts = 0; attempts < DumpStore::kMaxAttempts; ++attempts) {
    const bool is_suspect = attempts >= DumpStore::kCarefulAttempts;
    EXPECT_EQ(Open()->Unfinished().size(), is_suspect ? 0u : 1u);
    EXPECT_EQ(Open()->UnfinishedAndSuspect().size(), is_suspect ? 1u : 0u);
    EXPECT_TRUE(Open()->SetAside().empty());
    const pid_t child = fork();
    if (child == 0) {
      (void)Open()->NoteAttempt(dump.name());
      kill(getpid(), SIGKILL);
    }
    waitpid(child, nullptr, 0);
  }
  auto store = Open();
  EXPECT_TRUE(store->Unfinished().empty() && store->UnfinishedAndSuspect().empty());
  EXPECT_EQ(store->SetAside(), std::vector{dump.name()});
  const auto text = store->Get(dump.name())->notes();
  EXPECT_NE(text[text.size() - 1].find("does not try again"), std::string::npos) << text[text.size() - 1];
  EXPECT_EQ(*store->GetRaw(dump.name()), "raw") << "it is kept";
  // Once it is finished, it is a dump like others.
  Put(store.get(), dump);
  EXPECT_TRUE(Open()->SetAside().empty());
}

TEST_F(DumpStoreTest, CountsNoAttemptThatEnded) {
  ASSERT_TRUE(Open()->PutRaw(MakeDump(1), "raw"));
  for (int i = 0; i < 5; ++i) {
    auto store = Open();
    ASSERT_TRUE(store->NoteAttempt(MakeDump(1).name()));
    if (i % 2 == 0) store->EndAttempt(MakeDump(1).name());
    if (i % 2 == 1) store->EndAttempts();
  }
  EXPECT_EQ(Open()->Unfinished(), std::vector{MakeDump(1).name()});
}

TEST_F(DumpStoreTest, NotesNoAttemptOnceItIsToldToEnd) {
  ASSERT_TRUE(Open()->PutRaw(MakeDump(1), "raw"));
  for (int i = 0; i < 3; ++i) {
    auto store = Open();
    store->EndAttempts();
    ASSERT_TRUE(store->NoteAttempt(MakeDump(1).name()));
  }
  EXPECT_EQ(Open()->Unfinished(), std::vector{MakeDump(1).name()});
}

TEST_F(DumpStoreTest, ShrinksInSmallStepsWhenItsLimitsBecomeSmaller) {
  {
    auto store = Open();
    for (int i = 0; i < 200; ++i) Put(store.get(), MakeDump(i));
  }
  auto store = Open({.max_dumps = 10});
  Put(store.get(), MakeDump(1000));
  EXPECT_GT(store->dump_count(), 10) << "one write must not do it all";
  for (int i = 1001; i < 1005; ++i) Put(store.get(), MakeDump(i));
  EXPECT_EQ(store->dump_count(), 10);
}

TEST_F(DumpStoreTest, GivesFreedSpaceBackToTheDisk) {
  struct stat status;
  auto store = Open();
  for (int i = 0; i < 40; ++i) Put(store.get(), MakeLargeDump(i, 1'500'000));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(store->Delete(MakeDump(i).name()));
  for (int i = 100; i < 150; ++i) Put(store.get(), MakeDump(i));
  store.reset();
  ASSERT_EQ(stat(file_.c_str(), &status), 0);
  EXPECT_LT(status.st_size, 30'000'000);
}

TEST_F(DumpStoreTest, IsReadableByItsOwnerOnly) {
  const mode_t old = umask(0);
  auto store = Open();
  Put(store.get(), MakeDump(1));
  umask(old);
  for (const char* ending : {"", "-wal", "-shm"}) {
    struct stat status;
    ASSERT_EQ(stat((file_ + ending).c_str(), &status), 0) << ending;
    EXPECT_EQ(status.st_mode & 0777, 0600u) << ending;
  }
}

// --- Damage ---

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

TEST_F(DumpStoreTest, MovesAFileAsideThatIsNoDatabase) {
  WriteFile(file_, std::string(100'000, 'x'));
  auto store = Open();
  Put(store.get(), MakeDump(1));
  EXPECT_EQ(ReadFile(file_ + ".corrupt-1"), std::string(100'000, 'x'));
  ASSERT_EQ(store->Problems().size(), 1u);
  EXPECT_NE(store->Problems()[0].find("was corrupt and was moved to " + file_ + ".corrupt-1"), std::string::npos);
}

TEST_F(DumpStoreTest, MovesEachCorruptFileToANameOfItsOwn) {
  for (int i = 1; i <= 2; ++i) {
    WriteFile(file_, std::string(5000, 'x'));
    Open();
    EXPECT_EQ(access((file_ + ".corrupt-" + std::to_string(i)).c_str(), F_OK), 0);
  }
}

TEST_F(DumpStoreTest, KeepsOfCorruptFilesOnlySoManyBytesAndTheNewest) {
  const std::string content(40'000, 'x');
  for (int i = 1; i <= 4; ++i) {
    WriteFile(file_, content);
    auto store = Open({.max_bytes = 100'000});
    ASSERT_NE(store, nullptr);
    if (i == 3) {
      EXPECT_NE(store->Problems().back().find(file_ + ".corrupt-1 was removed"), std::string::npos);
    }
  }
  for (const auto& [number, is_there] : {std::pair(1, false), {2, false}, {3, true}, {4, true}}) {
    EXPECT_EQ(access((file_ + ".corrupt-" + std::to_string(number)).c_str(), F_OK) == 0, is_there) << number;
  }
  WriteFile(file_, content);
  Open({.max_bytes = 1000});
  EXPECT_NE(access((file_ + ".corrupt-4").c_str(), F_OK), 0);
  EXPECT_EQ(access((file_ + ".corrupt-5").c_str(), F_OK), 0) << "the newest stays, however large";
}

TEST_F(DumpStoreTest, NeverRefusesToStartForCorruptFiles) {
  for (int i = 1; i <= 12; ++i) {
    WriteFile(file_, "xxxxxxxxxxxxxxxxxxxx");
    ASSERT_NE(Open(), nullptr) << i;
  }
  int there = 0;
  for (int i = 1; i <= 12; ++i) there += access((file_ + ".corrupt-" + std::to_string(i)).c_str(), F_OK) == 0;
  EXPECT_EQ(there, 8);
}

TEST_F(DumpStoreTest, MovesACutFileAside) {
  {
    auto store = Open();
    for (int i = 0; i < 10; ++i) Put(store.get(), MakeLargeDump(i, 100'000));
  }
  for (size_t kept_bytes : {300'000, 20'000, 16'384, 5'000, 100}) {
    const std::string content = ReadFile(file_);
    ASSERT_GT(content.size(), kept_bytes);
    WriteFile(file_, content.substr(0, kept_bytes));
    auto store = Open();
    ASSERT_NE(store, nullptr) << kept_bytes;
    EXPECT_EQ(store->Problems().size(), 1u) << kept_bytes;
    for (int i = 0; i < 10; ++i) Put(store.get(), MakeLargeDump(i, 100'000));
    EXPECT_EQ(store->dump_count(), 10);
  }
}

TEST_F(DumpStoreTest, SurvivesAnyDamagedPage) {
  {
    auto store = Open();
    for (int i = 0; i < 10; ++i) Put(store.get(), MakeLargeDump(i, 50'000));
  }
  const std::string content = ReadFile(file_);
  for (size_t page = 0; page * 16384 < content.size(); ++page) {
    std::string damaged = content;
    for (size_t i = page * 16384 + (page == 0 ? 200 : 0); i < (page + 1) * 16384; ++i)
      damaged[i] = static_cast<char>(i * 7);
    ASSERT_EQ(system(("rm -f '" + file_ + "'*").c_str()), 0);
    WriteFile(file_, damaged);
    auto store = Open();
    ASSERT_NE(store, nullptr) << page;
    for (int i = 0; i < 10; ++i) {
      const auto got = store->Get(MakeDump(i).name());
      if (got) {
        EXPECT_EQ(got->SerializeAsString().size(), MakeLargeDump(i, 50'000).SerializeAsString().size() + 3) << page;
      }
    }
    for (int i = 20; i < 22; ++i) Put(store.get(), MakeLargeDump(i, 50'000));
    EXPECT_TRUE(store->Get(MakeDump(21).name())) << page;
  }
}

TEST_F(DumpStoreTest, BeginsANewFileWhenSomebodyRemovesItWhileInUse) {
  auto store = Open();
  Put(store.get(), MakeDump(1));
  ASSERT_EQ(unlink(file_.c_str()), 0);  // its log stays behind
  Put(store.get(), MakeDump(2));
  ASSERT_EQ(store->Problems().size(), 1u);
  EXPECT_NE(store->Problems()[0].find("was removed"), std::string::npos);
  EXPECT_EQ(store->dump_count(), 1);
  store.reset();
  store = Open();
  EXPECT_EQ(NamesOf(*store->List({})), std::vector{MakeDump(2).name()});
}

TEST_F(DumpStoreTest, MovesAFileAsideWhoseDamageIsMetLater) {
  {
    auto store = Open();
    for (int i = 0; i < 10; ++i) Put(store.get(), MakeLargeDump(i, 50'000));
  }
  auto store = Open();
  std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(16384);
  file << std::string(200'000, 'x');
  file.close();
  EXPECT_FALSE(store->Get(MakeDump(3).name()));
  Put(store.get(), MakeDump(20));
  EXPECT_TRUE(store->Get(MakeDump(20).name()));
  EXPECT_EQ(store->Problems().size(), 1u);
  EXPECT_EQ(access((file_ + ".corrupt-1").c_str(), F_OK), 0);
}

TEST_F(DumpStoreTest, RefusesAFileOfALaterVersion) {
  Open();
  sqlite3* connection;
  ASSERT_EQ(sqlite3_open(file_.c_str(), &connection), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(connection, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(connection);
  const auto store = DumpStore::Open({.file = file_});
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message.find("newer stackd"), std::string::npos) << store.error().message;
  EXPECT_NE(access((file_ + ".corrupt-1").c_str(), F_OK), 0) << "it must stay where it is";
}

TEST_F(DumpStoreTest, LeavesTheDatabaseOfAnotherProgramAlone) {
  sqlite3* connection;
  ASSERT_EQ(sqlite3_open(file_.c_str(), &connection), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(connection, "CREATE TABLE theirs(x)", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(connection);
  const std::string before = ReadFile(file_);
  const auto store = DumpStore::Open({.file = file_});
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message.find("another program"), std::string::npos) << store.error().message;
  EXPECT_EQ(ReadFile(file_), before);
}

TEST_F(DumpStoreTest, SaysWhyNoFileCanBeMade) {
  const auto missing = DumpStore::Open({.file = folder_.File("no/such/folder/store.db")});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("No such file or directory"), std::string::npos) << missing.error().message;
  EXPECT_NE(missing.error().message.find("--store"), std::string::npos);
  EXPECT_NE(DumpStore::Open({.file = folder_.path()}).error().message.find("not a regular file"), std::string::npos);
}

// Runs `body` in a child process, so that limits and a changed user end with it.
void InChild(const std::function<void()>& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child's failures stand above";
}

TEST_F(DumpStoreTest, SaysThatAFolderIsReadOnly) {
  ASSERT_EQ(chmod(folder_.path().c_str(), 0555), 0);
  InChild([&] {
    if (geteuid() == 0) {  // root may write anywhere
      ASSERT_EQ(seteuid(65534), 0);
    }
    const auto store = DumpStore::Open({.file = file_});
    ASSERT_FALSE(store);
    EXPECT_NE(store.error().message.find("Permission denied"), std::string::npos) << store.error().message;
  });
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
}

TEST_F(DumpStoreTest, WorksAgainOnceAFullDiskHasSpace) {
  InChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    auto store = Open();
    Put(store.get(), MakeDump(1));
    // Writing past the limit fails as it does on a full disk.
    const rlimit full{200'000, RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
    const auto refused = store->Put(MakeLargeDump(2, 1'000'000));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kUnavailable);
    EXPECT_EQ(refused.error().reason, "STORE_UNAVAILABLE");
    EXPECT_EQ(store->dump_count(), 1);
    EXPECT_TRUE(store->Get(MakeDump(1).name())) << "what is there can be read";

    const rlimit space{RLIM_INFINITY, RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &space), 0);
    Put(store.get(), MakeLargeDump(2, 1'000'000));
    EXPECT_TRUE(store->Get(MakeDump(2).name()));
    EXPECT_EQ(store->dump_count(), 2);
    EXPECT_TRUE(store->Problems().empty());
  });
}

// --- Threads ---

TEST_F(DumpStoreTest, ServesReadersAndWritersAtOnce) {
  auto store = Open({.max_dumps = 20});
  Put(store.get(), MakeDump(0));
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 3; ++writer) {
    threads.emplace_back([&, writer] {
      for (int i = 0; i < 60; ++i) {
        const v1::Dump dump = MakeDump(i, std::to_string(writer) + "-0");
        EXPECT_TRUE(store->PutRaw(dump, "raw"));
        EXPECT_TRUE(store->Put(dump));
      }
    });
  }
  for (int reader = 0; reader < 3; ++reader) {
    threads.emplace_back([&] {
      while (!done) {
        const auto newest = store->Newest();
        ASSERT_TRUE(newest);
        const auto dump = store->Get(*newest);
        if (!dump) {
          EXPECT_EQ(dump.error().reason, "DUMP_NOT_FOUND") << "evicted meanwhile";
        }
        std::set<std::string> names;
        DumpQuery query{.page_size = 7};
        do {
          const auto page = store->List(query);
          ASSERT_TRUE(page);
          for (const v1::Dump& listed : page->dumps) EXPECT_TRUE(names.insert(listed.name()).second);
          query.page_token = page->next_page_token;
        } while (!query.page_token.empty());
      }
    });
  }
  for (int writer = 0; writer < 3; ++writer) threads[writer].join();
  done = true;
  for (size_t i = 3; i < threads.size(); ++i) threads[i].join();
  EXPECT_EQ(store->dump_count(), 20);
  EXPECT_EQ(store->List({})->dumps.size(), 20u);
}

TEST_F(DumpStoreTest, KeepsDumpsInMemoryWhenAskedTo) {
  auto store = Open({.file = ":memory:", .max_dumps = 2});
  for (int i = 0; i < 3; ++i) Put(store.get(), MakeDump(i));
  EXPECT_EQ(store->dump_count(), 2);
  EXPECT_TRUE(store->Get(MakeDump(2).name()));
  EXPECT_NE(access(":memory:", F_OK), 0);
}

}  // namespace
}  // namespace stackd

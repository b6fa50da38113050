#include "daemon/store/dump_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "daemon/store/testing/store_fixture.h"

namespace stackd {
namespace {

using DumpStoreTest = StoreTest;

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
  auto other = Open({.file = directory_ + "/other.db"});
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

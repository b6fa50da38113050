// The store's file: damaged, of another version, on a disk that is full, or not there.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "daemon/store/testing/store_fixture.h"

namespace stackd {
namespace {

using StoreFileTest = StoreTest;

TEST_F(StoreFileTest, IsReadableByItsOwnerOnly) {
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

TEST_F(StoreFileTest, MovesAFileAsideThatIsNoDatabase) {
  WriteFile(file_, std::string(100'000, 'x'));
  auto store = Open();
  Put(store.get(), MakeDump(1));
  EXPECT_EQ(ReadFile(file_ + ".corrupt-1"), std::string(100'000, 'x'));
  ASSERT_EQ(store->Problems().size(), 1u);
  EXPECT_NE(store->Problems()[0].find("was corrupt and was moved to " + file_ + ".corrupt-1"), std::string::npos);
}

TEST_F(StoreFileTest, MovesEachCorruptFileToANameOfItsOwn) {
  for (int i = 1; i <= 2; ++i) {
    WriteFile(file_, std::string(5000, 'x'));
    Open();
    EXPECT_EQ(access((file_ + ".corrupt-" + std::to_string(i)).c_str(), F_OK), 0);
  }
}

TEST_F(StoreFileTest, KeepsOfCorruptFilesOnlySoManyBytesAndTheNewest) {
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

TEST_F(StoreFileTest, NeverRefusesToStartForCorruptFiles) {
  for (int i = 1; i <= 12; ++i) {
    WriteFile(file_, "xxxxxxxxxxxxxxxxxxxx");
    ASSERT_NE(Open(), nullptr) << i;
  }
  int there = 0;
  for (int i = 1; i <= 12; ++i) there += access((file_ + ".corrupt-" + std::to_string(i)).c_str(), F_OK) == 0;
  EXPECT_EQ(there, 8);
}

TEST_F(StoreFileTest, MovesACutFileAside) {
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

TEST_F(StoreFileTest, SurvivesAnyDamagedPage) {
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

TEST_F(StoreFileTest, BeginsANewFileWhenSomebodyRemovesItWhileInUse) {
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

TEST_F(StoreFileTest, MovesAFileAsideWhoseDamageIsMetLater) {
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

TEST_F(StoreFileTest, RefusesAFileOfALaterVersion) {
  Open();
  Execute(file_, "PRAGMA user_version=99");
  const auto store = DumpStore::Open({.file = file_});
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message.find("newer stackd"), std::string::npos) << store.error().message;
  EXPECT_NE(access((file_ + ".corrupt-1").c_str(), F_OK), 0) << "it must stay where it is";
}

TEST_F(StoreFileTest, LeavesTheDatabaseOfAnotherProgramAlone) {
  Execute(file_, "CREATE TABLE theirs(x)");
  const std::string before = ReadFile(file_);
  const auto store = DumpStore::Open({.file = file_});
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message.find("another program"), std::string::npos) << store.error().message;
  EXPECT_EQ(ReadFile(file_), before);
}

TEST_F(StoreFileTest, SaysWhyNoFileCanBeMade) {
  const auto missing = DumpStore::Open({.file = directory_ + "/no/such/directory/store.db"});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("No such file or directory"), std::string::npos) << missing.error().message;
  EXPECT_NE(missing.error().message.find("--store"), std::string::npos);
  EXPECT_NE(DumpStore::Open({.file = directory_}).error().message.find("not a regular file"), std::string::npos);
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

TEST_F(StoreFileTest, SaysThatAFolderIsReadOnly) {
  ASSERT_EQ(chmod(directory_.c_str(), 0555), 0);
  InChild([&] {
    if (geteuid() == 0) {  // root may write anywhere
      ASSERT_EQ(seteuid(65534), 0);
    }
    const auto store = DumpStore::Open({.file = file_});
    ASSERT_FALSE(store);
    EXPECT_NE(store.error().message.find("Permission denied"), std::string::npos) << store.error().message;
  });
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
}

TEST_F(StoreFileTest, WorksAgainOnceAFullDiskHasSpace) {
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

// --- Files of earlier versions ---

// As version 1 of the tables was, with a dump on request and one that a program asked for.
void MakeVersion1(const std::string& file) {
  sqlite3* connection;
  ASSERT_EQ(sqlite3_open(file.c_str(), &connection), SQLITE_OK);
  constexpr char kTables[] =
      "PRAGMA page_size=16384; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; BEGIN;"
      "CREATE TABLE dumps(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, process TEXT NOT NULL,"
      " display_name TEXT NOT NULL, create_seconds INTEGER NOT NULL, finished INTEGER NOT NULL,"
      " content_bytes INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, header BLOB NOT NULL);"
      "CREATE INDEX dumps_by_process ON dumps(process, id);"
      "CREATE TABLE contents(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"
      "CREATE TABLE raw_captures(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"
      "CREATE TABLE store(id INTEGER NOT NULL); INSERT INTO store VALUES(4711);"
      "PRAGMA application_id=1400138596; PRAGMA user_version=1; COMMIT;";
  ASSERT_EQ(sqlite3_exec(connection, kTables, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(connection);
  for (int i = 1; i <= 2; ++i) {
    v1::Dump dump = MakeRequest(i);
    if (i == 2) dump.set_trigger(v1::Dump::SELF);
    auto packed = DumpStore::Pack(std::make_shared<v1::Dump>(dump));
    ASSERT_TRUE(packed);
    sqlite3_stmt* put;
    ASSERT_EQ(
        sqlite3_prepare_v2(connection, "INSERT INTO dumps VALUES(?1, ?2, 'processes/7-100', 'checkout', ?3, 1, ?4, 0, ?5)",
                           -1, &put, nullptr),
        SQLITE_OK);
    sqlite3_bind_int(put, 1, i);
    sqlite3_bind_text(put, 2, dump.name().c_str(), -1, SQLITE_TRANSIENT);
    sqlite3_bind_int64(put, 3, dump.create_time().seconds());
    sqlite3_bind_int64(put, 4, static_cast<int64_t>(packed->content.size()));
    sqlite3_bind_blob64(put, 5, packed->header.data(), packed->header.size(), SQLITE_TRANSIENT);
    ASSERT_EQ(sqlite3_step(put), SQLITE_DONE);
    sqlite3_finalize(put);
    ASSERT_EQ(sqlite3_prepare_v2(connection, "INSERT INTO contents VALUES(?1, ?2)", -1, &put, nullptr), SQLITE_OK);
    sqlite3_bind_int(put, 1, i);
    sqlite3_bind_blob64(put, 2, packed->content.data(), packed->content.size(), SQLITE_TRANSIENT);
    ASSERT_EQ(sqlite3_step(put), SQLITE_DONE);
    sqlite3_finalize(put);
  }
  sqlite3_close(connection);
}

int64_t UserVersion(const std::string& file) {
  sqlite3* connection;
  EXPECT_EQ(sqlite3_open(file.c_str(), &connection), SQLITE_OK);
  sqlite3_stmt* query;
  EXPECT_EQ(sqlite3_prepare_v2(connection, "PRAGMA user_version", -1, &query, nullptr), SQLITE_OK);
  EXPECT_EQ(sqlite3_step(query), SQLITE_ROW);
  const int64_t version = sqlite3_column_int64(query, 0);
  sqlite3_finalize(query);
  sqlite3_close(connection);
  return version;
}

TEST_F(StoreFileTest, AddsGroupsToAFileOfVersion1) {
  MakeVersion1(file_);
  {
    auto store = Open();
    EXPECT_TRUE(store->Problems().empty());
    EXPECT_EQ(store->dump_count(), 2);
    EXPECT_EQ(store->Get(DumpName(1))->process().display_name(), "checkout");
    EXPECT_EQ(store->List({.trigger = v1::Dump::SELF})->dumps.at(0).name(), DumpName(2));
    EXPECT_EQ(store->List({.trigger = v1::Dump::REQUEST})->dumps.at(0).name(), DumpName(1));
    Store(store.get(), MakeCrash(3));
    EXPECT_EQ(store->GetGroup("")->crash_count(), 1);
  }
  EXPECT_EQ(UserVersion(file_), 3);
  EXPECT_EQ(Open()->dump_count(), 3);
}

TEST_F(StoreFileTest, LeavesAFileOfVersion1AsItIsWhenItCannotBeChanged) {
  MakeVersion1(file_);
  sqlite3* other;
  ASSERT_EQ(sqlite3_open(file_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_FALSE(DumpStore::Open({.file = file_})) << "another program has it locked";
  sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(other);
  EXPECT_EQ(UserVersion(file_), 1);
  EXPECT_EQ(Open()->dump_count(), 2);
}

}  // namespace
}  // namespace stackd

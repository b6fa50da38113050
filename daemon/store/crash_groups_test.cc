// Crashes over time: taken once, counted in groups, their dumps kept at both ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/store/testing/store_fixture.h"

namespace stackd {
namespace {

using testing::ElementsAre;

using CrashGroupsTest = StoreTest;

Result<void> Replace(DumpStore* store, const v1::Dump& dump) {
  auto packed = DumpStore::Pack(std::make_shared<v1::Dump>(dump));
  return store->Replace(std::move(*packed));
}

// --- Hangs ---

TEST_F(CrashGroupsTest, CountHangsApartFromCrashes) {
  auto store = Open();
  Store(store.get(), MakeCrash(1));
  ASSERT_TRUE(store->Put(MakeHang(2, 7)));
  ASSERT_TRUE(store->Put(MakeHang(3, 7)));
  const auto crashes = store->ListGroups({});
  ASSERT_EQ(crashes->groups.size(), 1u);
  EXPECT_EQ(crashes->groups[0].kind(), v1::CrashGroup::CRASH);
  const auto hangs = store->ListGroups({.kind = v1::CrashGroup::HANG});
  ASSERT_EQ(hangs->groups.size(), 1u);
  const v1::CrashGroup& group = hangs->groups[0];
  EXPECT_EQ(group.kind(), v1::CrashGroup::HANG);
  EXPECT_EQ(group.crash_count(), 2);
  EXPECT_EQ(group.top_function(), "pay");
  EXPECT_EQ(DumpsOf(group), Names({2, 3}));
  EXPECT_EQ(store->GetGroup("")->fingerprint(), FingerprintNumber(1)) << "that of the newest crash, though a hang is newer";
  EXPECT_EQ(store->GetGroup(FingerprintNumber(7))->fingerprint_frames_size(), 1);
}

TEST_F(CrashGroupsTest, KeepAllDumpsOfEqualHangs) {
  auto store = Open({.crashes_per_group = 1});
  for (int i = 1; i <= 5; ++i) ASSERT_TRUE(store->Put(MakeHang(i, 7)));
  EXPECT_EQ(DumpsOf(*store->GetGroup(FingerprintNumber(7))), Names({1, 2, 3, 4, 5}));
}

TEST_F(CrashGroupsTest, NameTheFirstAndTheLastOfManyDumps) {
  auto store = Open();
  for (int i = 1; i <= 1003; ++i) ASSERT_TRUE(store->Put(MakeHang(i, 7)));
  const auto group = store->GetGroup(FingerprintNumber(7));
  EXPECT_EQ(group->crash_count(), 1003);
  ASSERT_EQ(group->dumps_size(), 1000);
  EXPECT_EQ(group->dumps(0), DumpName(1));
  EXPECT_EQ(group->dumps(499), DumpName(500));
  EXPECT_EQ(group->dumps(500), DumpName(504));
  EXPECT_EQ(group->dumps(999), DumpName(1003));
}

TEST_F(CrashGroupsTest, MoveAHangThatIsNamedAnew) {
  auto store = Open();
  ASSERT_TRUE(store->Put(MakeHang(1, 7)));
  ASSERT_TRUE(store->Put(MakeHang(2, 7)));
  ASSERT_TRUE(Replace(store.get(), MakeHang(2, 8)));
  EXPECT_EQ(store->GetGroup(FingerprintNumber(7))->crash_count(), 1);
  EXPECT_EQ(store->GetGroup(FingerprintNumber(8))->crash_count(), 1);
}

TEST_F(CrashGroupsTest, GiveNoPageOfHangsToAListOfCrashes) {
  auto store = Open();
  for (int i = 1; i <= 2; ++i) ASSERT_TRUE(store->Put(MakeHang(i, i)));
  const auto first = store->ListGroups({.kind = v1::CrashGroup::HANG, .page_size = 1});
  ASSERT_FALSE(first->next_page_token.empty());
  EXPECT_FALSE(store->ListGroups({.page_size = 1, .page_token = first->next_page_token}));
  const GroupQuery rest{.kind = v1::CrashGroup::HANG, .page_size = 1, .page_token = first->next_page_token};
  EXPECT_EQ(store->ListGroups(rest)->groups[0].fingerprint(), FingerprintNumber(1));
}

// --- Once ---

TEST_F(CrashGroupsTest, TakeACrashOnce) {
  auto store = Open();
  Store(store.get(), MakeCrash(1));
  v1::Dump again = MakeCrash(1);
  again.set_name(DumpName(2));
  for (const Result<void>& refused : {store->PutRaw(Unfinished(again), "raw"), store->Put(again)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kAlreadyExists);
    EXPECT_EQ(refused.error().reason, "CRASH_ALREADY_STORED");
  }
  EXPECT_EQ(store->dump_count(), 1);
  EXPECT_EQ(store->GetGroup("")->crash_count(), 1);
  EXPECT_TRUE(store->Problems().empty()) << "a crash that comes twice is nothing an operator must look at";
}

TEST_F(CrashGroupsTest, TakeACrashOnceThoughItsDumpIsGoneAndTheDaemonWasRestarted) {
  {
    auto store = Open();
    Store(store.get(), MakeCrash(1));
    ASSERT_TRUE(store->Delete(DumpName(1)));
  }
  auto store = Open();
  v1::Dump again = MakeCrash(1);
  again.set_name(DumpName(2));
  EXPECT_EQ(store->PutRaw(Unfinished(again), "raw").error().reason, "CRASH_ALREADY_STORED");
}

TEST_F(CrashGroupsTest, TakeACrashWhoseRawCaptureWasNotStored) {
  auto store = Open();
  ASSERT_TRUE(store->Put(MakeCrash(1)));
  EXPECT_EQ(store->GetGroup("")->crash_count(), 1);
  EXPECT_EQ(store->GetRaw(DumpName(1)).error().reason, "RAW_CAPTURE_GONE");
  EXPECT_EQ(store->GetRaw(DumpName(2)).error().reason, "DUMP_NOT_FOUND");
}

TEST_F(CrashGroupsTest, CountACrashWhenItIsFinishedAlsoAfterARestart) {
  {
    auto store = Open();
    ASSERT_TRUE(store->PutRaw(Unfinished(MakeCrash(1)), "raw"));
    EXPECT_EQ(store->GetGroup("").error().reason, "GROUP_NOT_FOUND");
  }
  auto store = Open();
  ASSERT_TRUE(store->Put(MakeCrash(1)));
  ASSERT_TRUE(store->Put(MakeCrash(1))) << "finished once more";
  EXPECT_EQ(store->GetGroup("")->crash_count(), 1);
}

// --- Groups ---

TEST_F(CrashGroupsTest, SayWhatHappenedWhenAndToWhom) {
  auto store = Open();
  for (int i = 1; i <= 4; ++i) {
    v1::Dump crash = MakeCrash(i);
    crash.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond + i);
    crash.mutable_process()->set_display_name(i == 2 ? "cart" : "checkout");
    Store(store.get(), crash);
  }
  const auto group = store->GetGroup("stackGroups/" + FingerprintNumber(1));
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_EQ(group->name(), "stackGroups/" + FingerprintNumber(1));
  EXPECT_EQ(group->fingerprint(), FingerprintNumber(1));
  EXPECT_EQ(group->fingerprint_rule(), "crash-1");
  EXPECT_EQ(group->crash_count(), 4);
  EXPECT_EQ(group->last_seen_time().seconds() - group->first_seen_time().seconds(), 3);
  EXPECT_EQ(group->explanation(), "null dereference in load number 4");
  EXPECT_EQ(group->top_function(), "load1");
  ASSERT_EQ(group->processes_size(), 2);
  EXPECT_EQ(group->processes(0).display_name(), "checkout");
  EXPECT_EQ(group->processes(0).crash_count(), 3);
  EXPECT_EQ(group->processes(1).crash_count(), 1);
  EXPECT_EQ(DumpsOf(*group), Names({1, 2, 3, 4}));
  ASSERT_EQ(group->fingerprint_frames_size(), 2);
  EXPECT_FALSE(group->fingerprint_frames(0).used());
  EXPECT_EQ(group->fingerprint_frames(0).rule(), "noise: abort");
  EXPECT_EQ(store->GetGroup(FingerprintNumber(1))->SerializeAsString(), group->SerializeAsString());
}

TEST_F(CrashGroupsTest, SayTheLastCrashAlsoIfAnEarlierOneIsFinishedLater) {
  auto store = Open();
  v1::Dump early = MakeCrash(1), late = MakeCrash(2);
  late.mutable_create_time()->set_seconds(early.create_time().seconds() + 1);
  Store(store.get(), late);
  Store(store.get(), early);
  EXPECT_EQ(store->GetGroup("")->explanation(), late.crash().explanation());
  EXPECT_EQ(store->GetGroup("")->first_seen_time().seconds(), early.create_time().seconds());
}

TEST_F(CrashGroupsTest, KeepTheDumpsOfTheFirstAndTheLastCrashes) {
  auto store = Open({.crashes_per_group = 2});
  for (int i = 1; i <= 4; ++i) Store(store.get(), MakeCrash(i));
  EXPECT_EQ(DumpsOf(*store->GetGroup("")), Names({1, 2, 3, 4}));
  for (int i = 5; i <= 9; ++i) Store(store.get(), MakeCrash(i));
  EXPECT_EQ(DumpsOf(*store->GetGroup("")), Names({1, 2, 8, 9}));
  EXPECT_EQ(store->GetGroup("")->crash_count(), 9);
  EXPECT_EQ(store->dump_count(), 4);
  EXPECT_EQ(store->dropped_count(), 5);
  EXPECT_EQ(store->evicted_count(), 0);
  EXPECT_TRUE(store->GetRaw(DumpName(1)));
  EXPECT_EQ(store->Get(DumpName(5)).error().reason, "DUMP_NOT_FOUND");
}

TEST_F(CrashGroupsTest, LeaveTheDumpThatWasJustFinishedAlsoBetweenTheOthers) {
  auto store = Open({.crashes_per_group = 1});
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(store->PutRaw(Unfinished(MakeCrash(i)), "raw"));
  for (int i : {1, 3, 2}) {
    ASSERT_TRUE(store->Put(MakeCrash(i)));
    EXPECT_TRUE(store->Get(DumpName(i))) << "whoever is told of it must find it";
  }
}

TEST_F(CrashGroupsTest, OutliveTheirDumps) {
  {
    auto store = Open();
    for (int i = 1; i <= 3; ++i) Store(store.get(), MakeCrash(i));
    for (int i = 1; i <= 3; ++i) ASSERT_TRUE(store->Delete(DumpName(i)));
  }
  auto store = Open();
  const auto group = store->GetGroup("");
  ASSERT_TRUE(group);
  EXPECT_EQ(group->crash_count(), 3);
  EXPECT_EQ(group->dumps_size(), 0);
  EXPECT_GT(store->bytes(), 0) << "groups count too";
}

TEST_F(CrashGroupsTest, CountAThousandEqualCrashesInBoundedSpace) {
  auto store = Open();
  const std::string raw(3000, 'r');
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(store->PutRaw(Unfinished(MakeCrash(i)), raw));
    ASSERT_TRUE(store->Put(MakeCrash(i)));
  }
  const int64_t bytes = store->bytes();
  for (int i = 100; i < 1000; ++i) {
    ASSERT_TRUE(store->PutRaw(Unfinished(MakeCrash(i)), raw));
    ASSERT_TRUE(store->Put(MakeCrash(i)));
  }
  EXPECT_EQ(store->GetGroup("")->crash_count(), 1000);
  EXPECT_EQ(store->dump_count(), 10);
  EXPECT_LT(store->bytes(), bytes + 100);
  store.reset();
  struct stat status;
  ASSERT_EQ(stat(file_.c_str(), &status), 0);
  EXPECT_LT(status.st_size, 1'500'000);
}

TEST_F(CrashGroupsTest, ListTheNewestFirstPageByPage) {
  auto store = Open();
  for (int i = 1; i <= 25; ++i) Store(store.get(), MakeCrash(i, i));
  std::vector<std::string> seen;
  GroupQuery query{.page_size = 10};
  for (int page_number = 0;; ++page_number) {
    const auto page = store->ListGroups(query);
    ASSERT_TRUE(page);
    for (const v1::CrashGroup& group : page->groups) {
      seen.push_back(group.top_function());
      EXPECT_EQ(group.fingerprint_frames_size(), 0);
      EXPECT_GE(group.dumps_size(), 1);
    }
    if (page->next_page_token.empty()) break;
    query.page_token = page->next_page_token;
    // Neither new groups nor new crashes of old ones move anything.
    Store(store.get(), MakeCrash(100 + page_number, 100 + page_number));
    Store(store.get(), MakeCrash(200 + page_number, 3));
  }
  ASSERT_EQ(seen.size(), 25u);
  for (int i = 0; i < 25; ++i) EXPECT_EQ(seen[i], "load" + std::to_string(25 - i));
}

TEST_F(CrashGroupsTest, AreFoundByWhatPeopleKnowThemBy) {
  auto store = Open();
  Store(store.get(), MakeCrash(1, 1));
  v1::Dump other = MakeCrash(2, 2);
  other.mutable_process()->set_display_name("cart");
  Store(store.get(), other);
  const auto functions = [&](const std::string& filter) {
    std::vector<std::string> found;
    const auto page = store->ListGroups({.filter = filter});
    for (const v1::CrashGroup& group : page->groups) found.push_back(group.top_function());
    return found;
  };
  EXPECT_THAT(functions("cart"), ElementsAre("load2"));
  EXPECT_THAT(functions("load1"), ElementsAre("load1"));
  EXPECT_THAT(functions("number 2"), ElementsAre("load2"));
  EXPECT_THAT(functions("null dereference"), ElementsAre("load2", "load1"));
  EXPECT_THAT(functions("nothing"), ElementsAre());
}

TEST_F(CrashGroupsTest, RefusePageTokensOfOtherLists) {
  auto store = Open();
  for (int i = 1; i <= 3; ++i) Store(store.get(), MakeCrash(i, i));
  const std::string of_groups = store->ListGroups({.page_size = 1})->next_page_token;
  const std::string of_dumps = store->List({.page_size = 1})->next_page_token;
  ASSERT_TRUE(store->ListGroups({.page_token = of_groups}));
  EXPECT_EQ(store->ListGroups({.page_token = of_dumps}).error().reason, "BAD_PAGE_TOKEN");
  EXPECT_EQ(store->List({.page_token = of_groups}).error().reason, "BAD_PAGE_TOKEN");
  EXPECT_EQ(store->ListGroups({.filter = "x", .page_token = of_groups}).error().reason, "BAD_PAGE_TOKEN");
  EXPECT_EQ(store->List({.page_token = of_dumps, .trigger = v1::Dump::CRASH}).error().reason, "BAD_PAGE_TOKEN");
  EXPECT_EQ(store->ListGroups({.page_size = -1}).error().reason, "BAD_PAGE_SIZE");
}

TEST_F(CrashGroupsTest, SayWhichNamesTheyHave) {
  auto store = Open();
  for (const char* name : {"stackGroups/", "stackGroups/a/b", "dumps/x", "a b", "processes/7-100"}) {
    EXPECT_EQ(store->GetGroup(name).error().reason, "BAD_NAME") << name;
  }
  EXPECT_EQ(store->GetGroup("stackGroups/0123").error().reason, "GROUP_NOT_FOUND");
}

TEST_F(CrashGroupsTest, AreBoundedWhateverAProcessCallsItselfAndItsFunctions) {
  constexpr int64_t kMaxBytes = 1 << 20;
  auto store = Open({.max_bytes = kMaxBytes});
  for (int i = 0; i < 60; ++i) {
    v1::Dump crash = MakeCrash(i, i / 2);
    crash.mutable_process()->set_display_name("checkout-" + std::to_string(i));
    crash.mutable_crash()->set_explanation(std::string(5000, 'e'));
    for (int f = 0; f < 50; ++f) {
      v1::FingerprintFrame* frame = crash.mutable_crash()->add_fingerprint_frames();
      // Cut in the middle of a character.
      frame->set_function("f");
      for (int k = 0; k < 1000; ++k) frame->mutable_function()->append("ü");
    }
    const auto put = store->Put(crash);
    ASSERT_TRUE(put) << put.error().message;
  }
  size_t bytes = 0;
  GroupQuery query;
  do {
    const auto page = store->ListGroups(query);
    ASSERT_TRUE(page);
    for (const v1::CrashGroup& group : page->groups) {
      const std::string text = store->GetGroup(group.name())->SerializeAsString();
      EXPECT_LT(text.size(), 20'000u);
      bytes += text.size();
    }
    query.page_token = page->next_page_token;
  } while (!query.page_token.empty());
  EXPECT_LE(static_cast<int64_t>(bytes), kMaxBytes / 8 + 20'000);
  EXPECT_LE(store->bytes(), kMaxBytes);
  EXPECT_EQ(store->GetGroup("")->fingerprint(), FingerprintNumber(29)) << "the newest stays";
}

TEST_F(CrashGroupsTest, CountTheCrashesOfProcessesThatFindNoPlace) {
  auto store = Open();
  for (int i = 0; i < 30; ++i) {
    v1::Dump crash = MakeCrash(i);
    crash.mutable_process()->set_display_name("checkout-" + std::to_string(i));
    Store(store.get(), crash);
  }
  const auto group = store->GetGroup("");
  EXPECT_EQ(group->processes_size(), 16);
  EXPECT_EQ(group->other_process_crash_count(), 14);
}

TEST_F(CrashGroupsTest, LetACrashMoveWhenItsNamesBecomeKnown) {
  auto store = Open();
  for (int i = 1; i <= 2; ++i) Store(store.get(), MakeCrash(i, 1));
  v1::Dump renamed = MakeCrash(1, 2);
  ASSERT_TRUE(Replace(store.get(), renamed));
  EXPECT_EQ(store->GetGroup(FingerprintNumber(1))->crash_count(), 1);
  EXPECT_EQ(store->GetGroup(FingerprintNumber(1))->processes(0).crash_count(), 1);
  EXPECT_EQ(DumpsOf(*store->GetGroup(FingerprintNumber(1))), Names({2}));
  EXPECT_EQ(store->GetGroup(FingerprintNumber(2))->crash_count(), 1);
  EXPECT_EQ(DumpsOf(*store->GetGroup(FingerprintNumber(2))), Names({1}));

  ASSERT_TRUE(Replace(store.get(), MakeCrash(2, 2)));
  EXPECT_EQ(store->GetGroup(FingerprintNumber(1)).error().reason, "GROUP_NOT_FOUND") << "nothing is left of it";
  EXPECT_EQ(store->GetGroup(FingerprintNumber(2))->crash_count(), 2);
  EXPECT_EQ(store->GetRaw(DumpName(1)).value(), "raw");
}

TEST_F(CrashGroupsTest, DoNotLetADumpComeBackThatIsGone) {
  auto store = Open();
  Store(store.get(), MakeCrash(1));
  ASSERT_TRUE(store->Delete(DumpName(1)));
  EXPECT_EQ(Replace(store.get(), MakeCrash(1)).error().reason, "DUMP_NOT_FOUND");
  EXPECT_EQ(store->dump_count(), 0);
  EXPECT_EQ(store->GetGroup("")->crash_count(), 1);
}

TEST_F(CrashGroupsTest, ListDumpsWithOneTrigger) {
  auto store = Open();
  ASSERT_TRUE(store->Put(MakeRequest(1)));
  Store(store.get(), MakeCrash(2));
  const auto crashes = store->List({.trigger = v1::Dump::CRASH});
  ASSERT_EQ(crashes->dumps.size(), 1u);
  EXPECT_EQ(crashes->dumps[0].name(), DumpName(2));
  EXPECT_EQ(crashes->dumps[0].crash().explanation(), MakeCrash(2).crash().explanation());
  EXPECT_EQ(crashes->dumps[0].crash().fingerprint_frames_size(), 0) << "lists are small";
  EXPECT_EQ(store->List({.parent = "processes/7-100", .trigger = v1::Dump::REQUEST})->dumps.size(), 1u);
  EXPECT_EQ(store->List({.trigger = v1::Dump::HANG})->dumps.size(), 0u);
}

// --- The daemon's end ---

// Stores equal crashes until it is killed, and says which are stored.
[[noreturn]] void StoreUntilKilled(DumpStore* store, int first, int to_fd) {
  for (int number = first;; ++number) {
    const v1::Dump crash = MakeCrash(number);
    if (!store->PutRaw(Unfinished(crash), std::string(2000, 'r')) || !store->Put(crash)) _exit(1);
    if (write(to_fd, &number, sizeof(number)) != sizeof(number)) _exit(1);
  }
}

TEST_F(CrashGroupsTest, AreRightWhereverTheDaemonIsKilled) {
  constexpr int kKills = 20;
  int next = 1, finished_at_last = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(fds[0]);
      StoreUntilKilled(Open({.crashes_per_group = 3}).get(), next, fds[1]);
    }
    close(fds[1]);
    int last = next;
    for (int i = 0; i < 3 + kill_number % 7; ++i) ASSERT_EQ(read(fds[0], &last, sizeof(last)), ssize_t{sizeof(last)});
    ASSERT_EQ(kill(child, SIGKILL), 0);
    while (read(fds[0], &last, sizeof(last)) == sizeof(last)) {
    }
    close(fds[0]);
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));

    auto store = Open({.crashes_per_group = 3});
    ASSERT_TRUE(store->Problems().empty());
    // What it was about to store: finished, or copied only, or not there at all.
    v1::Dump interrupted = MakeCrash(last + 1);
    const auto raw = store->PutRaw(Unfinished(interrupted), "raw");
    EXPECT_TRUE(raw || raw.error().code == Code::kAlreadyExists) << raw.error().message;
    ASSERT_TRUE(store->Put(interrupted));
    next = last + 2;
    finished_at_last = last + 1;
    EXPECT_EQ(store->GetGroup("")->crash_count(), finished_at_last) << "each once";
    EXPECT_LE(store->dump_count(), 6);
    for (int number = 1; number <= finished_at_last; ++number) {
      v1::Dump again = MakeCrash(number);
      again.set_name(DumpName(1'000'000 + number));
      ASSERT_EQ(store->PutRaw(Unfinished(again), "raw").error().reason, "CRASH_ALREADY_STORED") << number;
    }
  }
}

}  // namespace
}  // namespace stackd

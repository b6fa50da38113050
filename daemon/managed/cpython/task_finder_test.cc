#include "daemon/managed/cpython/task_finder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr uint32_t kWithWeakSet = 0x30b, kWithList = 0x30d;
constexpr size_t kCoroutineWord = 12;

// A heap of CPython's, in this process: words, of which an object's first two are its references and its type.
class TaskFinderTest : public testing::Test {
 protected:
  void SetUp() override {
    Fd memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(files_.SetMemory(&memory));
  }

  uint64_t Words(std::vector<uint64_t> words) {
    blocks_.push_back(std::move(words));
    return reinterpret_cast<uint64_t>(blocks_.back().data());
  }
  uint64_t Object(const char* type, std::vector<uint64_t> rest) {
    std::vector<uint64_t> words(4);  // what may stand before an object
    words.push_back(1);
    words.push_back(Words({0, 0, 0, reinterpret_cast<uint64_t>(type)}));
    words.insert(words.end(), rest.begin(), rest.end());
    words.resize(words.size() + 16);
    return Words(std::move(words)) + 4 * sizeof(uint64_t);
  }
  uint64_t Str(std::string_view text) {
    const size_t characters_at = version_ < 0x30c ? 48 : 40;
    std::vector<uint64_t> rest(16);
    rest[0] = text.size();
    rest[2] = 1 << 2 | 1 << 5 | 1 << 6;
    memcpy(reinterpret_cast<char*>(rest.data()) + characters_at - 16, text.data(), text.size());
    return Object("str", std::move(rest));
  }
  // Its keys have no hashes beside them.
  uint64_t Dict(const std::vector<std::pair<std::string_view, uint64_t>>& entries) {
    constexpr uint64_t kLog2IndexBytes = 3, kUnicodeKeys = 1;
    std::vector<uint64_t> keys = {1, kLog2IndexBytes << 8 | kUnicodeKeys << 16, 0, entries.size(), 0};
    for (const auto& [key, value] : entries) {
      keys.push_back(Str(key));
      keys.push_back(value);
    }
    return Object("dict", {0, 0, Words(std::move(keys)), 0});
  }
  uint64_t Task(const char* type = "_asyncio.Task") {
    std::vector<uint64_t> rest(kCoroutineWord + 4);
    rest[kCoroutineWord - 2] = Object("coroutine", {});
    rest[kCoroutineWord - 1] = Str("a name");
    return Object(type, std::move(rest));
  }
  void SetNext(uint64_t task, uint64_t next) {
    memcpy(reinterpret_cast<void*>(task + (kCoroutineWord + 3) * sizeof(uint64_t)), &next, sizeof(next));
  }
  uint64_t SetOf(const std::vector<uint64_t>& referents, uint64_t mask) {
    std::vector<uint64_t> table;
    for (uint64_t referent : referents) {
      table.push_back(Object("weakref", {referent}));
      table.push_back(0);
    }
    table.resize(2 * 8);
    return Object("set", {0, referents.size(), mask, Words(std::move(table))});
  }
  uint64_t Interpreter(const std::vector<std::pair<std::string_view, uint64_t>>& modules) {
    std::vector<uint64_t> words(1024);
    words[(version_ == kWithWeakSet ? 888 : 7656) / sizeof(uint64_t)] = Dict(modules);
    return Words(std::move(words));
  }
  uint64_t Module(uint64_t dict, uint64_t state = 0) { return Object("module", {dict, 0, state}); }

  FoundTasks Find(uint64_t interpreter, size_t max_tasks = 100) {
    CpythonObjects objects(files_);
    EXPECT_TRUE(objects.OpenVersion(version_));
    return FindTasks(&objects, interpreter, max_tasks, MonotonicNs() + 10 * kNsPerSecond);
  }

  uint32_t version_ = kWithWeakSet;
  ProcessFiles files_;
  std::deque<std::vector<uint64_t>> blocks_;
};

TEST_F(TaskFinderTest, FindsThemInASetOfWeakReferences) {
  const uint64_t first = Task(), second = Task("MyTask"), none = Object("list", {});
  const uint64_t set = SetOf({first, second, none, 0}, 7);
  const uint64_t in_dict = Object("WeakSet", {Dict({{"_remove", 0}, {"data", set}})});
  const uint64_t as_field = Object("WeakSet", {set});
  for (const uint64_t weak_set : {in_dict, as_field}) {
    const uint64_t module = Module(Dict({{"Task", 0}, {"_all_tasks", weak_set}}));
    const FoundTasks found = Find(Interpreter({{"sys", Module(0)}, {"asyncio.tasks", module}}));
    EXPECT_THAT(found.avmas, UnorderedElementsAre(first, second));
    EXPECT_EQ(found.coroutine_offset, kCoroutineWord * sizeof(uint64_t));
    EXPECT_FALSE(found.is_cut);
  }
}

TEST_F(TaskFinderTest, FindsThoseOfAList) {
  version_ = kWithList;
  const uint64_t first = Task(), second = Task();
  SetNext(first, second);
  // It ends at a place that is no task, or leads back.
  for (const uint64_t last : {Object("object", {}), first}) {
    SetNext(second, last);
    std::vector<uint64_t> state(200);
    state[31] = first;
    const uint64_t interpreter =
        Interpreter({{"asyncio.tasks", Module(Dict({}))}, {"_asyncio", Module(Dict({}), Words(std::move(state)))}});
    const FoundTasks found = Find(interpreter);
    EXPECT_THAT(found.avmas, UnorderedElementsAre(first, second));
    EXPECT_FALSE(found.is_cut);
  }
}

TEST_F(TaskFinderTest, FindsNoneWhereSomethingIsNotWhatItShouldBe) {
  const uint64_t weak_set = Object("WeakSet", {SetOf({Task()}, 7)});
  const uint64_t module = Module(Dict({{"_all_tasks", weak_set}}));
  EXPECT_THAT(Find(Interpreter({{"asyncio.tasks", module}})).avmas, testing::SizeIs(1));
  EXPECT_THAT(Find(Interpreter({{"asyncio", module}})).avmas, IsEmpty());
  EXPECT_THAT(Find(Interpreter({{"asyncio.tasks", weak_set}})).avmas, IsEmpty());
  EXPECT_THAT(Find(Interpreter({{"asyncio.tasks", Module(module)}})).avmas, IsEmpty());
  EXPECT_THAT(Find(Interpreter({{"asyncio.tasks", 1}})).avmas, IsEmpty());
  const FoundTasks beginning = Find(Words(std::vector<uint64_t>(1024)));
  EXPECT_THAT(beginning.avmas, IsEmpty());
  EXPECT_FALSE(beginning.is_unknown);
  const FoundTasks elsewhere = Find(Words(std::vector<uint64_t>(1024, weak_set)));
  EXPECT_THAT(elsewhere.avmas, IsEmpty());
  EXPECT_TRUE(elsewhere.is_unknown);
  EXPECT_THAT(Find(8).avmas, IsEmpty());
}

TEST_F(TaskFinderTest, IsBoundedAndSaysSo) {
  const uint64_t task = Task();
  const auto with = [&](uint64_t set) {
    return Interpreter({{"asyncio.tasks", Module(Dict({{"_all_tasks", Object("WeakSet", {set})}}))}});
  };
  const FoundTasks one = Find(with(SetOf({task, Task()}, 7)), 1);
  EXPECT_THAT(one.avmas, ElementsAre(task));
  EXPECT_TRUE(one.is_cut);
  EXPECT_TRUE(Find(with(SetOf({task}, 1 << 30))).is_cut);
  EXPECT_THAT(Find(with(SetOf({task}, UINT64_MAX))).avmas, IsEmpty());
}

}  // namespace
}  // namespace stackd

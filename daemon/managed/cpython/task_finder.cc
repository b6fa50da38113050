#include "daemon/managed/cpython/task_finder.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr uint64_t kWord = sizeof(uint64_t);

// The same in all versions: PyDictObject, PyModuleObject, PyWeakReference, PySetObject.
constexpr uint64_t kDictKeys = 32, kDictValues = 40;
constexpr uint64_t kModuleDict = 16, kModuleState = 32;
constexpr uint64_t kReferent = 16;
constexpr uint64_t kSetEntryBytes = 16;

constexpr uint64_t kMaxEntries = 1 << 16, kMaxSlots = 1 << 20;
// How far a module's state is looked through, and an object with attributes; in words.
constexpr int kStateWords = 192;
constexpr int kWordsBeforeObject = 4, kWordsOfObject = 12;
constexpr int kAttributes = 8;
// A future's own fields come before those of a task.
constexpr int kFirstTaskWord = 4, kTaskWords = 48;

// PyInterpreterState.modules: pycore_interp.h (3.8: pystate.h) of 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1, 3.13.0.
constexpr std::array<uint64_t, 6> kModules = {56, 856, 856, 888, 944, 7656};

// The entries of a dict whose keys and values stand beside each other: PyDictKeysObject.
struct Entries {
  uint64_t first_avma = 0;
  uint64_t count = 0;
  uint64_t entry_bytes = 0;
  uint64_t key = 0;  // in an entry; the value is the word behind
};

class TaskFinder {
 public:
  TaskFinder(CpythonObjects* objects, size_t max_tasks, int64_t deadline_ns)
      : objects_(*objects), max_tasks_(max_tasks), deadline_ns_(deadline_ns) {}

  FoundTasks Find(uint64_t interpreter_avma) {
    const uint64_t modules_avma = objects_.Pointer(interpreter_avma + kModules.at(objects_.version() - 0x308));
    // It has none while it begins or ends.
    found_.is_unknown = modules_avma != 0 && objects_.TypeName(modules_avma) != "dict";
    const uint64_t tasks_avma = Lookup(modules_avma, "asyncio.tasks");
    if (objects_.TypeName(tasks_avma) != "module") return std::move(found_);
    const std::string_view set = objects_.version() < 0x30c ? "_all_tasks" : "_scheduled_tasks";
    AddReferents(FindSet(Lookup(objects_.Pointer(tasks_avma + kModuleDict), set)));
    if (objects_.version() == 0x30d) AddList(Lookup(modules_avma, "_asyncio"));
    found_.avmas.assign(tasks_.begin(), tasks_.end());
    return std::move(found_);
  }

 private:
  Entries EntriesOf(uint64_t dict_avma) const {
    const uint64_t keys_avma = objects_.Pointer(dict_avma + kDictKeys);
    Entries entries;
    if (objects_.version() < 0x30b) {
      const uint64_t slots = objects_.Pointer(keys_avma + 8);
      const uint64_t index_bytes = slots <= 0xff ? 1 : slots <= 0xffff ? 2 : 4;
      entries = {keys_avma + 40 + slots * index_bytes, objects_.Pointer(keys_avma + 32), 3 * kWord, kWord};
    } else {
      const auto log2_index_bytes = objects_.Value<uint8_t>(keys_avma + 9);
      const bool has_hashes = objects_.Value<uint8_t>(keys_avma + 10) == 0;
      entries = {keys_avma + 32 + (uint64_t{1} << std::min<uint8_t>(log2_index_bytes, 32)),
                 objects_.Pointer(keys_avma + 24), (has_hashes ? 3 : 2) * kWord, has_hashes ? kWord : 0};
    }
    entries.count = std::min(entries.count, kMaxEntries);
    return entries;
  }

  // The value of a text; 0: there is none.
  uint64_t Lookup(uint64_t dict_avma, std::string_view key) const {
    if (objects_.TypeName(dict_avma) != "dict") return 0;
    const Entries entries = EntriesOf(dict_avma);
    std::vector<uint64_t> words(entries.count * entries.entry_bytes / kWord);
    if (!objects_.ReadBytes(entries.first_avma, words.data(), words.size() * kWord)) return 0;
    for (uint64_t i = 0; i < entries.count; ++i) {
      const uint64_t at = (i * entries.entry_bytes + entries.key) / kWord;
      if (words[at] != 0 && objects_.IsText(words[at], key)) return words[at + 1];
    }
    return 0;
  }

  bool IsSet(uint64_t avma) const { return objects_.TypeName(avma) == "set"; }

  // A set among attributes; 0: there is none.
  uint64_t SetAmong(uint64_t values_avma) const {
    std::array<uint64_t, kAttributes> values = {};
    if (!objects_.ReadBytes(values_avma, values.data(), sizeof(values))) return 0;
    const auto set = std::ranges::find_if(values, [&](uint64_t avma) { return IsSet(avma); });
    return set == values.end() ? 0 : *set;
  }

  // The set that a WeakSet has as an attribute. Where attributes lie differs in each version: in a dict, in an array that a
  // word before the object leads to, or behind it.
  uint64_t FindSet(uint64_t weak_set_avma) const {
    if (weak_set_avma == 0) return 0;
    for (int i = -kWordsBeforeObject; i < kWordsOfObject; ++i) {
      const uint64_t word = objects_.Pointer(weak_set_avma + static_cast<uint64_t>(i) * kWord);
      if (word == 0) continue;
      if (IsSet(word)) return word;
      uint64_t set_avma = 0;
      if (objects_.TypeName(word) == "dict") {
        const uint64_t values_avma = objects_.Pointer(word + kDictValues);
        set_avma = values_avma != 0 ? SetAmong(values_avma) : Lookup(word, "data");
      } else if (i < 0) {
        // 3.12 marks it as an array by the lowest bit.
        set_avma = SetAmong((word + 1) & ~uint64_t{1});
      }
      if (IsSet(set_avma)) return set_avma;
    }
    return 0;
  }

  // Tasks that a set has weak references to.
  void AddReferents(uint64_t set_avma) {
    if (set_avma == 0) return;
    const uint64_t slots = objects_.Pointer(set_avma + objects_.offset(CpythonObjects::kSetMask)) + 1;
    if (slots > kMaxSlots) {
      found_.is_cut = true;
      return;
    }
    std::vector<uint64_t> words(slots * kSetEntryBytes / kWord);
    const uint64_t table_avma = objects_.Pointer(set_avma + objects_.offset(CpythonObjects::kSetTable));
    if (!objects_.ReadBytes(table_avma, words.data(), words.size() * kWord)) return;
    for (size_t i = 0; i < words.size() && !found_.is_cut; i += kSetEntryBytes / kWord) {
      if (words[i] != 0 && objects_.TypeName(words[i]).starts_with("weakref")) Add(objects_.Pointer(words[i] + kReferent));
    }
  }

  // 3.13 has a list of tasks besides, the newest first, whose first one is in the state of its module.
  void AddList(uint64_t module_avma) {
    if (objects_.TypeName(module_avma) != "module") return;
    std::array<uint64_t, kStateWords> state = {};
    if (!objects_.ReadBytes(objects_.Pointer(module_avma + kModuleState), state.data(), sizeof(state))) return;
    const auto first =
        std::ranges::find_if(state, [&](uint64_t avma) { return objects_.TypeName(avma) == "_asyncio.Task"; });
    uint64_t task_avma = first == state.end() ? 0 : *first;
    constexpr uint64_t kNextBehindCoroutine = 3 * kWord;
    while (task_avma != 0 && Add(task_avma)) {
      task_avma = objects_.Pointer(task_avma + found_.coroutine_offset + kNextBehindCoroutine);
    }
  }

  // False if it is none, or has been added already.
  bool Add(uint64_t task_avma) {
    found_.is_cut = tasks_.size() >= max_tasks_ || MonotonicNs() >= deadline_ns_;
    if (found_.is_cut) return false;
    const bool is_task = objects_.TypeName(task_avma).ends_with("Task");
    if (!is_task || (found_.coroutine_offset == 0 && !LearnOffset(task_avma))) return false;
    return tasks_.insert(task_avma).second;
  }

  // A task's coroutine and its name stand beside each other.
  bool LearnOffset(uint64_t task_avma) {
    for (uint64_t i = kFirstTaskWord; i < kTaskWords; ++i) {
      const std::string type = objects_.TypeName(objects_.Pointer(task_avma + i * kWord));
      if (type != "coroutine" && type != "generator") continue;
      const std::string name_type = objects_.TypeName(objects_.Pointer(task_avma + (i + 1) * kWord));
      if (name_type != "str" && name_type != "int") continue;
      found_.coroutine_offset = i * kWord;
      return true;
    }
    return false;
  }

  CpythonObjects& objects_;
  const size_t max_tasks_;
  const int64_t deadline_ns_;
  std::set<uint64_t> tasks_;
  FoundTasks found_;
};

}  // namespace

FoundTasks FindTasks(CpythonObjects* objects, uint64_t interpreter_avma, size_t max_tasks, int64_t deadline_ns) {
  return TaskFinder(objects, max_tasks, deadline_ns).Find(interpreter_avma);
}

}  // namespace stackd

#include "daemon/managed/task_table/task_table_reader.h"

#include <string.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/printable.h"
#include "stackd/wire.h"

namespace stackd {
namespace {

// Limit for a name or a place; types of futures can have kilobytes.
constexpr size_t kMaxTextBytes = 400;
// Limits for one task: more things than a task waits for at once, and stacks deeper than the crate writes.
constexpr size_t kMaxStacks = 64;

const char* StateInWords(uint32_t state) {
  switch (state) {
    case STACKD_TASK_WAITS:
      return "waiting";
    case STACKD_TASK_RUNS:
      return "running";
    case STACKD_TASK_IS_DUE:
      return "woken, not run since";
    case STACKD_TASK_NEVER_RAN:
      return "not run yet";
    case STACKD_TASK_NOT_ASKED:
      return "not asked";
    default:
      return nullptr;
  }
}

std::string Text(std::string_view bytes) { return PrintableText(bytes.substr(0, kMaxTextBytes)); }

// Takes records from the front of a table that may be shorter than they claim.
class Table {
 public:
  explicit Table(std::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }

  template <typename T>
  std::optional<T> Peek() const {
    if (rest_.size() < sizeof(T)) return std::nullopt;
    T value;
    memcpy(&value, rest_.data(), sizeof(T));
    return value;
  }

  std::optional<std::string_view> Take(size_t size_bytes) {
    if (size_bytes > rest_.size()) return std::nullopt;
    const std::string_view taken = rest_.substr(0, size_bytes);
    rest_.remove_prefix(size_bytes);
    return taken;
  }

 private:
  std::string_view rest_;
};

class Reading {
 public:
  Reading(const RuntimeInput& input, ManagedFacts* facts) : facts_(*facts) {
    for (const ThreadCapture& thread : input.capture.threads) tids_.insert(thread.tid);
  }

  void Run(std::string_view bytes) {
    Table table(bytes);
    const auto head = table.Peek<stackd_task_table>();
    if (!head || head->version != STACKD_TASK_TABLE_VERSION || !table.Take(sizeof(*head))) {
      facts_.notes.push_back("what the process said of its tasks makes no sense: they are missing");
      return;
    }
    const bool is_known = head->language <= static_cast<uint32_t>(Language::kLast);
    const std::string runtime = Text({head->runtime, strnlen(head->runtime, sizeof(head->runtime))});
    facts_.runtimes.push_back({is_known ? static_cast<Language>(head->language) : Language::kUnknown, runtime, ""});
    size_t listed = 0;
    bool is_damaged = false;
    while (!table.empty() && listed < TaskTableReader::kMaxTasks && !is_damaged) {
      is_damaged = !TakeRecord(&table);
      if (!is_damaged) listed++;
    }
    NoteWhatIsMissing(runtime, *head, listed, is_damaged);
  }

 private:
  bool TakeRecord(Table* table) {
    const auto record = table->Peek<stackd_task_record>();
    if (!record || record->size_bytes < sizeof(*record)) return false;
    const char* state = StateInWords(record->state);
    const auto bytes = table->Take(record->size_bytes);
    if (!bytes || state == nullptr) return false;
    Table rest(bytes->substr(sizeof(*record)));
    const auto words = rest.Take(size_t{record->word_count} * sizeof(uint64_t));
    const auto name = words ? rest.Take(record->name_bytes) : std::nullopt;
    const auto place = name ? rest.Take(record->place_bytes) : std::nullopt;
    if (!place) return false;
    ManagedTask task;
    task.kind = ManagedTaskKind::kTokioTask;
    task.id = record->id;
    task.name = Text(*name);
    task.state = state;
    task.created_by = Text(*place);
    // A thread that is not in the dump is not named.
    if (record->state == STACKD_TASK_RUNS && tids_.contains(record->tid)) task.tid = record->tid;
    AddStacks(*words, &task);
    facts_.tasks.push_back(std::move(task));
    return true;
  }

  void AddStacks(std::string_view words, ManagedTask* task) {
    NativeTaskStack stack;
    for (; !words.empty() && task->native_stacks.size() < kMaxStacks; words.remove_prefix(sizeof(uint64_t))) {
      uint64_t word;
      memcpy(&word, words.data(), sizeof(word));
      if (word != STACKD_TASK_STACK_WHOLE && word != STACKD_TASK_STACK_CUT) {
        stack.return_avmas.push_back(word);
        continue;
      }
      stack.cut = word == STACKD_TASK_STACK_CUT;
      AddStack(std::exchange(stack, NativeTaskStack()), task);
    }
  }

  void AddStack(NativeTaskStack stack, ManagedTask* task) {
    if (stack.return_avmas.empty()) return;
    std::pair key(stack.return_avmas, stack.cut);
    auto known = stack_index_.find(key);
    if (known == stack_index_.end()) {
      if (addresses_ + stack.return_avmas.size() > TaskTableReader::kMaxAddresses) {
        stacks_left_out_++;
        return;
      }
      addresses_ += stack.return_avmas.size();
      known = stack_index_.emplace(std::move(key), static_cast<int32_t>(facts_.native_task_stacks.size())).first;
      facts_.native_task_stacks.push_back(std::move(stack));
    }
    task->native_stacks.push_back(known->second);
  }

  void NoteWhatIsMissing(const std::string& runtime, const stackd_task_table& head, size_t listed, bool is_damaged) {
    if (is_damaged) {
      facts_.notes.push_back("what the process said of its tasks makes no sense after the first " + std::to_string(listed) +
                             ": the others are missing");
    } else if (head.there_are > listed) {
      facts_.notes.push_back(runtime + " has " + std::to_string(head.there_are) + " tasks: " + std::to_string(listed) +
                             " are listed");
    }
    if (stacks_left_out_ > 0) {
      facts_.notes.push_back(std::to_string(stacks_left_out_) + " stacks of tasks are left out: there were too many");
    }
    const auto in_state = [&](uint32_t state) {
      return std::ranges::count(facts_.tasks, std::string_view(StateInWords(state)), &ManagedTask::state);
    };
    if (const auto count = in_state(STACKD_TASK_NOT_ASKED); count > 0) {
      facts_.notes.push_back(std::to_string(count) + " tasks of " + runtime +
                             " have no stack: there was no time to ask where they wait");
    }
  }

  ManagedFacts& facts_;
  std::set<int32_t> tids_;
  std::map<std::pair<std::vector<uint64_t>, bool>, int32_t> stack_index_;
  size_t addresses_ = 0;
  int64_t stacks_left_out_ = 0;
};

}  // namespace

void TaskTableReader::Read(const RuntimeInput& input, ManagedFacts* facts) {
  if (input.capture.task_table.empty() || input.frames_only) return;
  // Apart: what other runtimes have found is not counted.
  ManagedFacts told;
  Reading(input, &told).Run(input.capture.task_table);
  const auto append = [](auto* from, auto* to) {
    to->insert(to->end(), std::make_move_iterator(from->begin()), std::make_move_iterator(from->end()));
  };
  append(&told.runtimes, &facts->runtimes);
  append(&told.native_task_stacks, &facts->native_task_stacks);
  append(&told.tasks, &facts->tasks);
  append(&told.notes, &facts->notes);
}

}  // namespace stackd

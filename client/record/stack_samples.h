// Many samples of one process, counted: which threads were where, how often, and what they waited for.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Where threads of one name, or tasks of one kind, were found.
struct SampledStack {
  std::string who;   // name of the thread, or what its runtime calls a task: "goroutine"
  std::string wait;  // "waits for mutex 0x55…40, held by thread writer (tid 12)"; empty: it ran, or that is not known
  std::string wait_kind;
  v1::Stack stack;    // without frames where there is none
  std::string state;  // in words, of a thread without a stack
  bool is_task = false;
  bool is_idle = false;      // it waited for work, time or events, as the finding IDLE has it
  int64_t count = 0;         // how often a thread was found so
  int64_t most_at_once = 0;  // threads in one sample
};

// Not thread-safe.
class StackSamples {
 public:
  // Adds a sample. All must be of one process; the agent's own thread does not count.
  void Add(const v1::Dump& sample);
  // Notes that a sample could not be taken, and why.
  void Miss(const std::string& reason) { ++missed_[reason]; }

  // As the first sample has it.
  const v1::Process& process() const { return process_; }
  int64_t sample_count() const { return sample_count_; }
  // How often samples were missed, by reason.
  const std::map<std::string, int64_t>& missed() const { return missed_; }
  // All that was counted, threads and tasks. Of it, what found no room: stacks that came when there were kMaxStacks, and
  // threads that found none in the daemon's answer.
  int64_t total() const { return total_; }
  int64_t left_out() const { return left_out_; }
  const std::vector<v1::Module>& modules() const { return modules_; }
  // Stacks, those with the most time first.
  std::vector<const SampledStack*> MostFirst() const;

  static constexpr size_t kMaxStacks = 50'000;

 private:
  // How many threads of one sample were found in each stack.
  using Found = std::unordered_map<SampledStack*, int64_t>;

  void AddThread(const v1::Dump& sample, const v1::Thread& thread, bool is_idle, Found* found);
  void AddTask(const v1::Dump& sample, const v1::Task& task, Found* found);
  // `stack`: index into those of the sample; negative: none.
  void AddAt(const v1::Dump& sample, int stack, SampledStack what, Found* found);
  void AddModules(const v1::Dump& sample);

  v1::Process process_;
  int64_t sample_count_ = 0, total_ = 0, left_out_ = 0;
  std::map<std::string, int64_t> missed_;
  std::vector<v1::Module> modules_;
  std::set<std::pair<std::string, std::string>> known_modules_;  // path and address
  std::unordered_map<std::string, SampledStack> stacks_;         // by all that tells them apart
};

}  // namespace stackd

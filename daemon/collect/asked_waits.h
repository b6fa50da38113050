// What threads wait for, by the answers of their process, where its memory may not be read (STACKD_SHARE).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/capture/waits.h"
#include "daemon/collect/agent_questions.h"
#include "daemon/process/lock_layout.h"
#include "daemon/process/process_files.h"
#include "daemon/process/wait_facts.h"

namespace stackd {

// Both belong to the process, and must outlive this. `files` counts what was told of its memory.
class AskedWaits {
 public:
  AskedWaits(AgentQuestions* questions, const ProcessFiles* files) : questions_(questions), files_(files) {}

  // As ReadWaitFacts and ReadFutexWords. A thread that is on its way back into its call, as after a signal, is asked for
  // again until the deadline.
  WaitFacts Facts(RwlockLayout layout, std::span<const ThreadCall> calls, int64_t deadline_ns) const;
  std::vector<FutexWord> Words(RwlockLayout layout, std::span<const FutexWait> waits, int64_t deadline_ns) const;
  // How many SIGTERMs the program has taken; nullopt: it did not say by the deadline.
  std::optional<uint64_t> SigtermCount(int64_t deadline_ns) const;

 private:
  // What is asked, and of which threads in turn: any of those that wait on a futex will do.
  struct Subject {
    stackd_wait_question_kind kind;
    uint64_t avma;
    std::vector<int32_t> tids;
    std::optional<stackd_wait_answer> answer = {};
    bool is_open = true;
  };
  void Ask(std::vector<Subject>* subjects, int64_t deadline_ns) const;
  bool AskOnce(std::vector<Subject>* subjects, size_t round, int64_t deadline_ns) const;

  AgentQuestions* const questions_;
  const ProcessFiles* const files_;
};

}  // namespace stackd

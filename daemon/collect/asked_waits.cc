#include "daemon/collect/asked_waits.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/capture/waited_on.h"
#include "daemon/process/futex_words.h"

namespace stackd {
namespace {

static_assert(STACKD_LOCK_BYTES_BEFORE == kLockBytesBefore && STACKD_LOCK_BYTES_FROM == kLockBytesFrom);

constexpr int64_t kFirstPauseNs = kNsPerMs;
// Until threads that were signalled sleep again: 63 ms of pauses, which is long only where they wait for a core.
constexpr size_t kMaxRounds = 6;
// A mutex that changes hands has no owner for some nanoseconds, and is not believed then.
constexpr int kLooks = 3;
constexpr uint32_t kLockedWithWaiters = 2;

bool IsLock(const stackd_wait_answer& answer) {
  return answer.count <= sizeof(answer.lock) && answer.word_offset <= STACKD_LOCK_BYTES_BEFORE &&
         answer.word_offset + sizeof(uint32_t) <= answer.count;
}

int32_t TidIn(int32_t number) { return number > 0 && number <= kMaxTid ? number : 0; }

FutexWord WordIn(uint64_t avma, const stackd_wait_answer& answer, RwlockLayout layout) {
  FutexWord word = DecodeFutex(avma, std::span(answer.lock).first(answer.count), answer.word_offset, layout);
  if (word.mutex || word.rwlock) return word;
  word.thread_tid = TidIn(answer.thread_tid);
  if (word.thread_tid == 0) word.stdio_owner_tid = TidIn(answer.stdio_owner_tid);
  return word;
}

bool IsClear(const FutexWord& word) {
  return word.mutex || word.rwlock || word.value != kLockedWithWaiters || word.thread_tid != 0 || word.stdio_owner_tid != 0;
}

std::vector<int32_t> FdsIn(const stackd_wait_answer& answer) {
  std::vector<int32_t> fds(answer.fds, answer.fds + std::min(answer.count, STACKD_MAX_TABLE_FDS));
  std::erase_if(fds, [](int32_t fd) { return fd < 0; });
  return fds;
}

// Not asleep where it was seen; it may be on its way back.
bool MayComeBack(int32_t error) { return error == -EAGAIN; }

}  // namespace

bool AskedWaits::AskOnce(std::vector<Subject>* subjects, size_t round, int64_t deadline_ns) const {
  std::vector<stackd_wait_question> questions;
  std::vector<Subject*> asked;
  for (Subject& subject : *subjects) {
    if (!subject.is_open) continue;
    questions.push_back({subject.kind, subject.tids[round % subject.tids.size()], subject.avma});
    asked.push_back(&subject);
  }
  if (questions.empty()) return false;
  const auto answers = questions_->AskWaits(questions, deadline_ns);
  bool is_any_open = false;
  for (size_t i = 0; i < asked.size(); i++) {
    Subject& subject = *asked[i];
    const bool has_others = round + 1 < subject.tids.size();
    subject.is_open = answers[i] && answers[i]->error != 0 && (has_others || MayComeBack(answers[i]->error));
    if (answers[i] && answers[i]->error == 0) subject.answer = answers[i];
    is_any_open = is_any_open || subject.is_open;
  }
  return is_any_open;
}

void AskedWaits::Ask(std::vector<Subject>* subjects, int64_t deadline_ns) const {
  int64_t pause_ns = kFirstPauseNs;
  for (size_t round = 0; AskOnce(subjects, round, deadline_ns); round++) {
    if (round + 1 == kMaxRounds || MonotonicNs() + pause_ns >= deadline_ns) break;
    usleep(static_cast<useconds_t>(pause_ns / 1000));
    pause_ns *= 2;
  }
  for (Subject& subject : *subjects) subject.is_open = false;
}

std::vector<FutexWord> AskedWaits::Words(RwlockLayout layout, std::span<const FutexWait> waits, int64_t deadline_ns) const {
  std::map<uint64_t, std::vector<int32_t>> waiters;
  for (const auto& [tid, avma] : waits) {
    if (waiters.size() < kMaxFutexWords || waiters.contains(avma)) waiters[avma].push_back(tid);
  }
  std::vector<Subject> subjects;
  for (auto& [avma, tids] : waiters) subjects.push_back({STACKD_ASK_LOCK, avma, std::move(tids)});
  std::map<uint64_t, FutexWord> known;
  for (int look = 0; look < kLooks; look++) {
    Ask(&subjects, deadline_ns);
    for (Subject& subject : subjects) {
      const auto answer = std::exchange(subject.answer, std::nullopt);
      if (!answer || !IsLock(*answer)) continue;
      files_->CountMemoryRead(answer->count);
      const FutexWord& word = known[subject.avma] = WordIn(subject.avma, *answer, layout);
      subject.is_open = !IsClear(word);
    }
  }
  std::vector<FutexWord> words;
  for (const auto& [avma, word] : known) words.push_back(word);
  MarkShared(*files_, &words);
  return words;
}

WaitFacts AskedWaits::Facts(RwlockLayout layout, std::span<const ThreadCall> calls, int64_t deadline_ns) const {
  WaitFacts facts;
  std::vector<FutexWait> waits;
  std::set<uint64_t> futexes;
  std::vector<Subject> tables;
  for (const auto& [tid, call] : calls) {
    if (const auto futex = WaitedFutex(call)) {
      waits.push_back({tid, *futex});
      futexes.insert(*futex);
    }
    if (WaitedFdTable(call)) tables.push_back({STACKD_ASK_FD_TABLE, 0, {tid}});
  }
  facts.futex_count = futexes.size();
  facts.futexes = Words(layout, waits, deadline_ns);
  Ask(&tables, deadline_ns);
  for (const Subject& table : tables) {
    if (!table.answer) continue;
    files_->CountMemoryRead(table.answer->count * sizeof(int32_t));
    facts.polled[table.tids.front()] = FdsIn(*table.answer);
  }
  return facts;
}

std::optional<uint64_t> AskedWaits::SigtermCount(int64_t deadline_ns) const {
  const stackd_wait_question question{.kind = STACKD_ASK_SIGTERM};
  const auto answers = questions_->AskWaits(std::span(&question, 1), deadline_ns);
  if (!answers.front() || answers.front()->error != 0) return std::nullopt;
  return answers.front()->number;
}

}  // namespace stackd

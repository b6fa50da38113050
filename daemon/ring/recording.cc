#include "daemon/ring/recording.h"

#include <algorithm>
#include <utility>

#include "daemon/ring/managed_trace_bytes.h"

namespace stackd {
namespace {

constexpr size_t kMaxThreads = 100'000;
// Limit for all stacks in one capture, with the traces of runtimes; 10,000 threads of 4 KiB in use take about 10 MiB.
constexpr size_t kMaxCaptureBytes = 256u << 20;

// One capture leaves room for others.
size_t MaxBytes(const ByteBudget* budget) {
  return budget == nullptr ? kMaxCaptureBytes : std::min(kMaxCaptureBytes, static_cast<size_t>(budget->limit_bytes() / 2));
}

std::string Mebibytes(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

Recording::Recording(uint32_t seq, CollectorCounters* counters, ByteBudget* budget)
    : seq_(seq), counters_(counters), max_bytes_(MaxBytes(budget)), held_(std::make_shared<HeldBytes>(budget)) {}

bool Recording::Take(size_t bytes) {
  if (bytes > max_bytes_ - captured_bytes_ || !held_->Take(static_cast<int64_t>(bytes))) return false;
  captured_bytes_ += bytes;
  return true;
}

void Recording::Fill(ThreadRecord record, ThreadCapture* thread) {
  thread->name = std::move(record.name);
  thread->cpu_ns = record.cpu_ns;
  const bool by_helper = (record.flags & STACKD_THREAD_BY_HELPER) != 0;
  thread->pause_ns = by_helper ? 0 : record.handler_ns;
  thread->read_asleep = by_helper;
  thread->is_agent = (record.flags & STACKD_THREAD_OF_AGENT) != 0;
  thread->thread_self_avma = record.thread_self_avma;
  thread->call = record.call;
  std::copy(std::begin(record.registers), std::end(record.registers), thread->registers.value.begin());
  thread->registers.known = by_helper ? KnownAsleep(thread->registers) : Registers::kAll;
  size_t bytes = 8 * (record.masks.capacity() + record.words.capacity());
  if (!Take(bytes)) {
    over_limit_++;
    return;
  }
  if (Take(BytesOf(record.managed))) {
    thread->traces = std::move(record.managed);
  } else {
    traces_over_limit_++;
  }
  thread->has_stack = true;
  thread->stack_truncated = (record.flags & STACKD_THREAD_TRUNCATED) != 0;
  thread->stack = StackCopy(record.stack_base_avma, record.stack_words, std::move(record.masks), std::move(record.words),
                            record.outer_base_avma, record.outer_words);
  // A thread that the helper read has a status that says why, before or after this. Else it was left asleep on purpose.
  if (!by_helper || thread->status == ThreadCapture().status) thread->status = ThreadStatus::kCaptured;
  // As it was before that: it had to run to answer.
  if (!by_helper) thread->kernel_state = 0;
}

void Recording::AddCrashed(uint32_t tid, std::optional<ThreadRecord> record) {
  crashed_tid_ = tid;
  ThreadCapture* thread = Add(tid);
  if (record) {
    Fill(std::move(*record), thread);
  } else {
    thread->status = ThreadStatus::kAgentFault;
  }
}

void Recording::OnThread(ThreadRecord record) {
  counters_->ring_records++;
  if (record.seq != seq_) {
    counters_->ring_late_records++;
    return;
  }
  ThreadCapture* thread = Add(record.tid);
  if (thread == nullptr || thread->has_stack || is_crashed(record.tid)) return;
  Fill(std::move(record), thread);
}

void Recording::OnStatus(StatusRecord record) {
  counters_->ring_records++;
  if (record.seq != seq_) return;
  ThreadCapture* thread = Add(record.tid);
  if (thread == nullptr || is_crashed(record.tid)) return;
  thread->status = static_cast<ThreadStatus>(record.status);
  thread->kernel_state = record.kernel_state;
  thread->wait_channel = std::move(record.wait_channel);
  if (!record.name.empty()) thread->name = std::move(record.name);
}

void Recording::OnCorrupt(const char* what) {
  corrupt_++;
  last_corruption_ = what;
}

ThreadCapture* Recording::Add(uint32_t tid) {
  auto [it, added] = index_.try_emplace(tid, threads_.size());
  if (added) {
    if (threads_.size() >= kMaxThreads) {
      index_.erase(it);
      return nullptr;
    }
    threads_.emplace_back().tid = static_cast<int32_t>(tid);
  }
  return &threads_[it->second];
}

std::vector<ThreadCapture> Recording::TakeThreads() {
  std::ranges::sort(threads_, {}, &ThreadCapture::tid);
  return std::move(threads_);
}

void Recording::AddNotes(std::vector<std::string>* notes) const {
  if (corrupt_ > 0) notes->push_back(std::to_string(corrupt_) + " records of the ring made no sense: " + last_corruption_);
  if (over_limit_ > 0) {
    notes->push_back(std::to_string(over_limit_) + " stacks were dropped: the dump has more than " + Mebibytes(max_bytes_) +
                     ", or all dumps together more than this daemon has memory for");
  }
  if (traces_over_limit_ > 0) {
    notes->push_back("what runtimes know of " + std::to_string(traces_over_limit_) +
                     " threads was dropped: the dump has more than " + Mebibytes(max_bytes_) +
                     ", or all dumps together more than this daemon has memory for");
  }
}

}  // namespace stackd

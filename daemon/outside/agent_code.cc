#include "daemon/outside/agent_code.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "daemon/base/clock.h"

extern "C" {
#include "agent/capture/syscall_arguments.h"
#include "agent/maps/code_ranges.h"
#include "agent/runtimes/runtimes.h"
#include "agent/sys/target.h"
}

namespace stackd {
namespace {

constexpr uint32_t kRingBytes = 2u << 20;

class Taker : public RingReader::Listener {
 public:
  explicit Taker(Recording* recording) : recording_(recording) {}
  void OnThread(ThreadRecord record) override { recording_->OnThread(std::move(record)); }
  void OnStatus(StatusRecord record) override { recording_->OnStatus(std::move(record)); }
  void OnCrash(CrashRecord) override {}
  void OnWait(WaitRecord) override {}
  void OnSchedStats(SchedStatRecord) override {}
  void OnCorrupt(const char* what) override { recording_->OnCorrupt(what); }

 private:
  Recording* const recording_;
};

}  // namespace

Result<std::unique_ptr<AgentCode>> AgentCode::SetOn(int32_t pid, int maps_fd, uint32_t max_stack_bytes) {
  auto ring = Ring::Create(kRingBytes);
  if (!ring) return std::unexpected(ring.error());
  std::unique_ptr<AgentCode> agent(new AgentCode(std::move(*ring)));
  agent->pid_ = pid;
  agent->max_stack_bytes_ = max_stack_bytes;
  if (!stackd_ring_attach(&agent->writers_, agent->ring_->header(), agent->ring_->size_bytes())) {
    return Error(Code::kInternal, "a ring of this program is none");
  }
  stackd_target_set(pid);
  if (const int error = stackd_code_ranges_refresh(maps_fd); error < 0) {
    const std::string name = "process " + std::to_string(pid);
    if (error == -ESRCH) return Error(Code::kNotFound, name + " has just ended");
    return Error(Code::kPermissionDenied, "what " + name + " has mapped cannot be read: " + strerror(-error));
  }
  stackd_managed_find_runtimes(maps_fd);
  return agent;
}

stackd_capture AgentCode::Begin(int32_t tid) const {
  stackd_capture capture{};
  capture.ring = &writers_;
  capture.ranges = stackd_code_ranges_current();
  capture.filter = stackd_filter_choose();
  capture.seq = kSeq;
  capture.tid = static_cast<uint32_t>(tid);
  capture.pid = pid_;
  capture.max_stack_bytes = max_stack_bytes_;
  capture.begin_ns = static_cast<uint64_t>(MonotonicNs());
  return capture;
}

void AgentCode::FillRegisters(const user_regs_struct& registers, stackd_capture* capture) {
  const user_regs_struct& from = registers;
  const uint64_t values[STACKD_REGISTERS] = {from.rax, from.rdx, from.rcx, from.rbx, from.rsi, from.rdi,
                                             from.rbp, from.rsp, from.r8,  from.r9,  from.r10, from.r11,
                                             from.r12, from.r13, from.r14, from.r15, from.rip};
  std::copy(std::begin(values), std::end(values), capture->regs);
  capture->by_kernel_only = true;
  capture->thread_self = registers.fs_base;
}

void AgentCode::FillCall(const user_regs_struct& registers, stackd_capture* capture) {
  const uint64_t arguments[STACKD_SYSCALL_ARGUMENTS] = {registers.rdi, registers.rsi, registers.rdx,
                                                        registers.r10, registers.r8,  registers.r9};
  stackd_syscall_keep(static_cast<uint32_t>(registers.orig_rax), arguments, &capture->call);
}

void AgentCode::Take(Recording* recording) {
  Taker taker(recording);
  reader_.Drain(&taker);
}

}  // namespace stackd

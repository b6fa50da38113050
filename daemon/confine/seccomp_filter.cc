#include "daemon/confine/seccomp_filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>

namespace stackd {
namespace {

constexpr uint32_t kX32Bit = 0x40000000;

sock_filter Load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }

// Skips so many instructions if the test is true, so many if not.
sock_filter Jump(uint16_t test, uint32_t value, uint8_t if_true, uint8_t if_not) {
  return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | test | BPF_K), value, if_true, if_not);
}

// The lower half, on a machine that stores it first.
size_t OffsetOf(int argument) { return offsetof(seccomp_data, args) + static_cast<size_t>(argument) * sizeof(uint64_t); }

}  // namespace

SeccompFilter::SeccompFilter(FilterAnswer otherwise) : otherwise_(otherwise) {
  program_.push_back(Load(offsetof(seccomp_data, arch)));
  program_.push_back(Jump(BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0));
  Answer(FilterAnswer::kRefuse);
  program_.push_back(Load(offsetof(seccomp_data, nr)));
  program_.push_back(Jump(BPF_JGE, kX32Bit, 0, 1));
  Answer(FilterAnswer::kRefuse);
}

void SeccompFilter::Answer(FilterAnswer answer) {
  program_.push_back(BPF_STMT(BPF_RET | BPF_K, answer == FilterAnswer::kAllow
                                                   ? static_cast<uint32_t>(SECCOMP_RET_ALLOW)
                                                   : static_cast<uint32_t>(SECCOMP_RET_ERRNO | EPERM)));
}

void SeccompFilter::Add(std::span<const uint32_t> numbers, FilterAnswer answer) {
  for (uint32_t number : numbers) {
    program_.push_back(Jump(BPF_JEQ, number, 0, 1));
    Answer(answer);
  }
}

// Each rule on an argument ends in an answer, so that the number is still loaded for the next rule.
void SeccompFilter::AllowOnlyWith(uint32_t number, int argument, std::initializer_list<uint32_t> values) {
  program_.push_back(Jump(BPF_JEQ, number, 0, static_cast<uint8_t>(2 + 2 * values.size())));
  program_.push_back(Load(OffsetOf(argument)));
  for (uint32_t value : values) {
    program_.push_back(Jump(BPF_JEQ, value, 0, 1));
    Answer(FilterAnswer::kAllow);
  }
  Answer(FilterAnswer::kRefuse);
}

void SeccompFilter::AllowOnlyWithout(uint32_t number, int argument, uint32_t bits) {
  program_.push_back(Jump(BPF_JEQ, number, 0, 4));
  program_.push_back(Load(OffsetOf(argument)));
  program_.push_back(Jump(BPF_JSET, bits, 0, 1));
  Answer(FilterAnswer::kRefuse);
  Answer(FilterAnswer::kAllow);
}

bool SeccompFilter::Install() const {
  std::vector<sock_filter> program = program_;
  program.push_back(BPF_STMT(BPF_RET | BPF_K, otherwise_ == FilterAnswer::kAllow
                                                  ? static_cast<uint32_t>(SECCOMP_RET_ALLOW)
                                                  : static_cast<uint32_t>(SECCOMP_RET_ERRNO | EPERM)));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace stackd

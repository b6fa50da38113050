#include "daemon/analyze/code/syscall_site.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "daemon/analyze/names/syscall_name.h"
#include "daemon/base/fd.h"
#include "daemon/modules/module.h"

namespace stackd {
namespace {

// `before` ends at the program counter, `after` begins there; what is not given is filled with nops.
SyscallSite Decode(const std::vector<uint8_t>& before, const std::vector<uint8_t>& after) {
  std::vector<uint8_t> code(kSyscallSiteBytesBefore + kSyscallSiteBytesAfter, 0x90);
  std::ranges::copy(before, code.begin() + kSyscallSiteBytesBefore - before.size());
  std::ranges::copy(after, code.begin() + kSyscallSiteBytesBefore);
  return DecodeSyscallSite(code);
}

TEST(SyscallSite, IsFoundBehindTheInstruction) {
  const SyscallSite site = Decode({0xb8, 0xca, 0, 0, 0, 0x0f, 0x05}, {0x48, 0x3d});
  EXPECT_TRUE(site.in_syscall);
  EXPECT_EQ(site.number, 202u);
}

TEST(SyscallSite, IsFoundAtTheInstructionOfACallThatWillBeRestarted) {
  const SyscallSite site = Decode({0xb8, 0x07, 0, 0, 0}, {0x0f, 0x05});
  EXPECT_TRUE(site.in_syscall);
  EXPECT_EQ(site.number, 7u);
}

TEST(SyscallSite, IsNotWhereOtherCodeRuns) {
  EXPECT_FALSE(Decode({0xb8, 0xca, 0, 0, 0}, {0x90, 0x90}).in_syscall);
  EXPECT_FALSE(Decode({0x0f, 0x05, 0x90}, {0x90, 0x0f}).in_syscall) << "a system call that is over";
}

TEST(SyscallSite, KnowsTheNumberZero) { EXPECT_EQ(Decode({0x31, 0xc0, 0x0f, 0x05}, {}).number, 0u); }

TEST(SyscallSite, KnowsTheNumberThatWasLoadedBeforeAnArgument) {
  // mov $202,%eax; xor $0x81,%sil; syscall
  EXPECT_EQ(Decode({0xb8, 0xca, 0, 0, 0, 0x40, 0x80, 0xf6, 0x81, 0x0f, 0x05}, {}).number, 202u);
}

TEST(SyscallSite, DoesNotTakeOtherInstructionsForTheNumber) {
  EXPECT_FALSE(Decode({0x41, 0xb8, 0xca, 0, 0, 0, 0x0f, 0x05}, {}).number) << "mov $202,%r8d";
  EXPECT_FALSE(Decode({0x8b, 0xb8, 0xca, 0, 0, 0, 0x89, 0xd0, 0x0f, 0x05}, {}).number) << "mov 0xca(%rax),%edi";
  EXPECT_FALSE(Decode({0xb8, 0xca, 0, 0, 0x7f, 0x0f, 0x05}, {}).number) << "no system call has that number";
  EXPECT_FALSE(Decode({0x89, 0xd0, 0x0f, 0x05}, {}).number) << "mov %edx,%eax";
}

TEST(SyscallName, KnowsEveryNumberOfTheKernelHeaders) {
  EXPECT_EQ(SyscallName(SYS_read), "read");
  EXPECT_EQ(SyscallName(SYS_futex), "futex");
  EXPECT_EQ(SyscallName(SYS_rseq), "rseq");
  EXPECT_EQ(SyscallName(335), "");
  EXPECT_EQ(SyscallName(423), "");
  EXPECT_EQ(SyscallName(SYS_pidfd_send_signal), "pidfd_send_signal");
  EXPECT_EQ(SyscallName(SYS_futex_waitv), "futex_waitv");
  EXPECT_EQ(SyscallName(0xffffffff), "");
}

AddressMap MapOfThisProcess() {
  std::ifstream maps("/proc/self/maps");
  std::vector<Mapping> mappings = ParseMaps(std::string(std::istreambuf_iterator<char>(maps), {}));
  for (Mapping& mapping : mappings) {
    if (!mapping.executable || !mapping.path.starts_with('/')) continue;
    auto module = Module::Open(Fd(open(mapping.path.c_str(), O_RDONLY | O_CLOEXEC)), mapping.path);
    if (!module) continue;
    mapping.module = *module;
    mapping.bias = MappingBias(mapping, **module).value_or(0);
  }
  return AddressMap(std::move(mappings));
}

// The program counter of a thread of this process that sleeps in a system call, which the kernel names first.
uint64_t PcOfThreadIn(pid_t tid, long number) {
  const std::string path = "/proc/self/task/" + std::to_string(tid) + "/syscall";
  while (true) {
    std::ifstream file(path);
    std::istringstream line(std::string(std::istreambuf_iterator<char>(file), {}));
    std::vector<std::string> words{std::istream_iterator<std::string>(line), {}};
    if (words.size() == 9 && words[0] == std::to_string(number)) return std::stoull(words[8], nullptr, 16);
    std::this_thread::yield();
  }
}

TEST(SyscallSite, IsReadFromTheCodeOfALiveThread) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  std::atomic<pid_t> tid = 0;
  std::thread sleeper([&] {
    tid = gettid();
    char byte;
    EXPECT_EQ(read(pipe_fds[0], &byte, 1), 1);
  });
  while (tid == 0) std::this_thread::yield();
  const auto site = ReadSyscallSite(MapOfThisProcess(), PcOfThreadIn(tid, SYS_read));
  EXPECT_EQ(write(pipe_fds[1], "x", 1), 1);
  sleeper.join();
  ASSERT_TRUE(site);
  EXPECT_TRUE(site->in_syscall);
  EXPECT_EQ(site->number, static_cast<uint32_t>(SYS_read));

  const auto running = ReadSyscallSite(MapOfThisProcess(), reinterpret_cast<uint64_t>(&MapOfThisProcess));
  ASSERT_TRUE(running);
  EXPECT_FALSE(running->in_syscall);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(SyscallSite, IsUnknownOutsideOfFiles) {
  EXPECT_FALSE(ReadSyscallSite(MapOfThisProcess(), 0x10));
  EXPECT_FALSE(ReadSyscallSite(AddressMap({}), 0x10));
}

}  // namespace
}  // namespace stackd

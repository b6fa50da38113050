// The input is the code of a library without unwind tables. Every instruction lies within it, what is said of its frames is
// bounded, and it is said in bounded time.
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "daemon/modules/module.h"
#include "daemon/unwind/x86_64/code_step.h"
#include "daemon/unwind/x86_64/instruction.h"

namespace {

using stackd::Fd;
using stackd::Module;

constexpr uint64_t kCodeOffset = 0x1000;
constexpr size_t kMaxCodeBytes = 64 << 10;
// A step may leave no more behind it than a frame may have, and a frame's worth of what was on the stack before.
constexpr int64_t kMaxCfaOffset = 4 << 20;

std::vector<uint8_t> Library(std::span<const uint8_t> code) {
  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_flags = PF_R | PF_X;
  segment.p_offset = segment.p_vaddr = kCodeOffset;
  segment.p_filesz = segment.p_memsz = code.size();
  std::vector<uint8_t> file(kCodeOffset + code.size());
  memcpy(file.data(), &header, sizeof(header));
  memcpy(file.data() + sizeof(header), &segment, sizeof(segment));
  memcpy(file.data() + kCodeOffset, code.data(), code.size());
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size_bytes) {
  const std::span code(bytes, std::min(size_bytes, kMaxCodeBytes));
  for (size_t at = 0; at < code.size(); ++at) {
    const auto instruction = stackd::DecodeInstruction(code.subspan(at));
    if (instruction && (instruction->size_bytes == 0 || instruction->size_bytes > code.size() - at)) abort();
  }
  if (code.empty()) return 0;
  const std::vector<uint8_t> file = Library(code);
  Fd fd(memfd_create("fuzz", MFD_CLOEXEC));
  if (write(fd.get(), file.data(), file.size()) != static_cast<ssize_t>(file.size())) return 0;
  const auto module = Module::Open(std::move(fd), "fuzz");
  if (!module) abort();
  stackd::CodeSteps steps;
  steps.StartStack();
  for (size_t at = 0; at < code.size(); ++at) {
    const uint64_t svma = kCodeOffset + at;
    const auto step = steps.Find(**module, svma, at % 2 == 0 ? svma : svma - 1);
    if (step && std::abs(int64_t{step->cfa_offset}) > kMaxCfaOffset) abort();
  }
  return 0;
}

// The input is a file that a process has mapped. All of the daemon's own parsing of it is done: headers, sections, unwind
// tables, and a walk up a stack that leads through its code.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/modules/address_map.h"
#include "daemon/modules/module.h"
#include "daemon/unwind/unwinder.h"

namespace {

using stackd::AddressMap;
using stackd::Fd;
using stackd::Mapping;
using stackd::Module;
using stackd::Segment;

constexpr uint64_t kPageBytes = 4096;

Fd FileOf(const uint8_t* bytes, size_t size_bytes) {
  Fd fd(memfd_create("fuzz", MFD_CLOEXEC));
  if (write(fd.get(), bytes, size_bytes) != static_cast<ssize_t>(size_bytes)) return Fd();
  return fd;
}

// Its first executable segment, somewhere in memory.
Mapping CodeMapping(const std::shared_ptr<const Module>& module) {
  Mapping mapping{};
  mapping.start_avma = 0x7f0000000000;
  mapping.end_avma = mapping.start_avma + (1 << 20);
  mapping.executable = true;
  for (const Segment& segment : module->segments()) {
    if (segment.executable) mapping.file_offset = segment.file_offset / kPageBytes * kPageBytes;
  }
  if (auto bias = MappingBias(mapping, *module)) {
    mapping.module = module;
    mapping.bias = *bias;
  }
  return mapping;
}

// Each word points to the next page of the mapping, or to the stack.
void Unwind(const std::shared_ptr<const Module>& module) {
  static stackd::Unwinder unwinder;
  constexpr uint64_t kStackBase = 0x7fff00000000;
  constexpr uint32_t kWords = 128;
  Mapping mapping = CodeMapping(module);
  uint64_t code_avma = mapping.start_avma;
  AddressMap map({mapping});
  std::vector<uint64_t> words(kWords);
  for (uint32_t i = 0; i < kWords; ++i) words[i] = i % 3 == 0 ? kStackBase + 8 * i : code_avma + (i * 37) % 0x1800;
  stackd::StackCopy stack(kStackBase, kWords, {~uint64_t{0}, ~uint64_t{0}}, words);
  stackd::Registers registers;
  registers.value.fill(kStackBase + 256);
  for (uint64_t offset = 0; offset < 0x1800; offset += 61) {
    registers.value[stackd::Registers::kRip] = code_avma + offset;
    registers.value[stackd::Registers::kRsp] = kStackBase + 128 + offset % 16 * 8;
    for (uint32_t known : {stackd::Registers::kAll, 1u << stackd::Registers::kRip | 1u << stackd::Registers::kRsp}) {
      registers.known = known;
      unwinder.Unwind(registers, stack, false, map);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size_bytes) {
  auto module = Module::Open(FileOf(bytes, size_bytes), "fuzz");
  if (module) Unwind(*module);
  return 0;
}

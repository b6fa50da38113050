#include "daemon/unwind/testing/own_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>
#include <unwind.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace stackd {
namespace {

struct TruthWalk {
  OwnStack* stack;
  bool interrupted_frame_seen;
};

_Unwind_Reason_Code AddTruth(_Unwind_Context* context, void* argument) {
  auto* walk = static_cast<TruthWalk*>(argument);
  OwnStack& stack = *walk->stack;
  uint64_t ip = _Unwind_GetIP(context);
  // The frames of the signal handler come first.
  if (ip == stack.registers.value[Registers::kRip]) walk->interrupted_frame_seen = true;
  if (!walk->interrupted_frame_seen) return _URC_NO_REASON;
  // libgcc's way to say that there is no caller.
  if (ip == 0 && stack.truth_count > 0) return _URC_NORMAL_STOP;
  if (stack.truth_count == OwnStack::kMaxTruth) return _URC_NORMAL_STOP;
  stack.truth[stack.truth_count++] = ip;
  return _URC_NO_REASON;
}

StackCopy CopyWhere(const OwnStack& stack, auto keep) {
  std::vector<uint64_t> masks((stack.word_count + 63) / 64), kept;
  for (uint32_t i = 0; i < stack.word_count; ++i) {
    if (!keep(stack.words[i])) continue;
    masks[i / 64] |= uint64_t{1} << (i % 64);
    kept.push_back(stack.words[i]);
  }
  return StackCopy(stack.base_avma, stack.word_count, std::move(masks), std::move(kept));
}

std::vector<Mapping> OwnMappings() {
  std::ifstream file("/proc/self/maps");
  return ParseMaps(std::string(std::istreambuf_iterator<char>(file), {}));
}

Fd OpenMapped(const Mapping& mapping) {
  if (mapping.path != "[vdso]") return Fd(open(mapping.path.c_str(), O_RDONLY | O_CLOEXEC));
  Fd image(memfd_create("vdso", MFD_CLOEXEC));
  auto* start = reinterpret_cast<const void*>(mapping.start_avma);
  size_t size_bytes = mapping.end_avma - mapping.start_avma;
  if (write(image.get(), start, size_bytes) != static_cast<ssize_t>(size_bytes)) return Fd();
  return image;
}

struct TimerCapture {
  OwnStacks* stacks;
  uint64_t top_avma;
  bool with_truth;
};
TimerCapture timer_capture;

void OnProfilingTimer(int, siginfo_t*, void* context) {
  timer_capture.stacks->Capture(*static_cast<ucontext_t*>(context), timer_capture.top_avma, timer_capture.with_truth);
}

}  // namespace

OwnStacks::OwnStacks(size_t max_stacks, size_t max_bytes)
    : words_(new uint64_t[max_bytes / 8]), words_size_(max_bytes / 8) {
  stacks_.reserve(max_stacks);
  for (const Mapping& mapping : OwnMappings()) {
    if (mapping.path.find("libgcc_s") == std::string::npos || !mapping.executable) continue;
    libgcc_begin_avma_ = mapping.start_avma;
    libgcc_end_avma_ = mapping.end_avma;
  }
}

void OwnStacks::Capture(const ucontext_t& context, uint64_t top_avma, bool with_truth) {
  constexpr uint64_t kRedZoneBytes = 128;
  if (full()) return;
  Registers registers = RegistersOf(context);
  uint64_t base_avma = (registers.value[Registers::kRsp] - kRedZoneBytes) & ~uint64_t{7};
  if (with_truth && IsLibgcc(registers.value[Registers::kRip])) return;
  if (base_avma >= top_avma || (top_avma - base_avma) / 8 > words_size_ - words_used_) return;
  OwnStack& stack = stacks_.emplace_back();
  stack.registers = registers;
  stack.base_avma = base_avma;
  stack.word_count = static_cast<uint32_t>((top_avma - base_avma) / 8);
  stack.words = words_.get() + words_used_;
  memcpy(words_.get() + words_used_, reinterpret_cast<const void*>(base_avma), stack.word_count * 8);
  words_used_ += stack.word_count;
  TruthWalk walk{&stack, false};
  if (with_truth) _Unwind_Backtrace(AddTruth, &walk);
}

void CaptureByTimer(OwnStacks& stacks, bool with_truth, void (*run)()) {
  timer_capture = {&stacks, OwnStackTop(), with_truth};
  struct sigaction action{};
  action.sa_sigaction = OnProfilingTimer;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGPROF, &action, nullptr);
  itimerval every_ms{{0, 1000}, {0, 1000}}, never{};
  setitimer(ITIMER_PROF, &every_ms, nullptr);
  while (!stacks.full()) run();
  setitimer(ITIMER_PROF, &never, nullptr);
}

Registers RegistersOf(const ucontext_t& context) {
  // From DWARF's order to that of ucontext_t.
  constexpr int kOrder[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
                            REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  Registers registers;
  for (size_t i = 0; i < registers.value.size(); ++i) {
    registers.value[i] = static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[i]]);
  }
  return registers;
}

uint64_t OwnStackTop() {
  char here;
  AddressMap map(OwnMappings());
  return map.Find(reinterpret_cast<uint64_t>(&here))->end_avma;
}

std::shared_ptr<const AddressMap> OwnAddressMap() {
  std::vector<Mapping> mappings = OwnMappings();
  std::map<std::string, std::shared_ptr<const Module>> modules;
  for (Mapping& mapping : mappings) {
    if (mapping.path.empty()) continue;
    auto [found, added] = modules.try_emplace(mapping.path);
    if (added && (mapping.path[0] == '/' || mapping.path == "[vdso]")) {
      found->second = Module::Open(OpenMapped(mapping), mapping.path).value_or(nullptr);
    }
    if (found->second == nullptr) continue;
    std::optional<uint64_t> bias = MappingBias(mapping, *found->second);
    if (!bias) continue;
    mapping.module = found->second;
    mapping.bias = *bias;
  }
  return std::make_shared<const AddressMap>(std::move(mappings));
}

StackCopy FullCopy(const OwnStack& stack) {
  return CopyWhere(stack, [](uint64_t word) { return word != 0; });
}

StackCopy FilteredCopy(const OwnStack& stack, const AddressMap& map) {
  uint64_t end_avma = stack.base_avma + 8ull * stack.word_count;
  return CopyWhere(stack, [&](uint64_t word) {
    if (word >= stack.base_avma && word < end_avma) return true;
    const Mapping* mapping = map.Find(word);
    return mapping != nullptr && mapping->executable;
  });
}

}  // namespace stackd

// For tests: captures of the stack of the process that runs them, and what libgcc makes of the same stack.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/capture/registers.h"
#include "daemon/capture/stack_copy.h"
#include "daemon/modules/address_map.h"

namespace stackd {

// Signal-safe to fill in: everything has its place.
struct OwnStack {
  static constexpr int kMaxTruth = 192;

  Registers registers;
  uint64_t base_avma = 0;
  const uint64_t* words = nullptr;
  uint32_t word_count = 0;
  // Return addresses by libgcc, the interrupted PC first.
  uint64_t truth[kMaxTruth];
  int truth_count = 0;
};

// Memory for captures that a signal handler makes.
class OwnStacks {
 public:
  OwnStacks(size_t max_stacks, size_t max_bytes);

  // Copies from the red zone of the interrupted frame up to `top_avma`; with libgcc's view of it if `with_truth`. Drops the
  // capture if it does not fit, or if libgcc itself was interrupted. After its switch to the stack of an exception's
  // handler its own tables are wrong, and it crashes when it follows them. Signal-safe.
  void Capture(const ucontext_t& context, uint64_t top_avma, bool with_truth);

  bool IsLibgcc(uint64_t pc_avma) const { return pc_avma >= libgcc_begin_avma_ && pc_avma < libgcc_end_avma_; }
  const std::vector<OwnStack>& stacks() const { return stacks_; }
  bool full() const { return stacks_.size() == stacks_.capacity(); }

 private:
  std::vector<OwnStack> stacks_;
  std::unique_ptr<uint64_t[]> words_;
  size_t words_used_ = 0;
  size_t words_size_ = 0;
  uint64_t libgcc_begin_avma_ = 0;
  uint64_t libgcc_end_avma_ = 0;
};

// Calls `run` until `stacks` is full, with a capture at every millisecond of CPU time.
void CaptureByTimer(OwnStacks& stacks, bool with_truth, void (*run)());

Registers RegistersOf(const ucontext_t& context);

// One past the highest address of the calling thread's stack mapping.
uint64_t OwnStackTop();

// What is mapped now, with modules.
std::shared_ptr<const AddressMap> OwnAddressMap();

StackCopy FullCopy(const OwnStack& stack);
// As the agent filters: words that point into code or into the stack itself.
StackCopy FilteredCopy(const OwnStack& stack, const AddressMap& map);

}  // namespace stackd

// How much memory the daemon spends on what programs bring about: no program can have it killed, however much it has.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace stackd {

// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(int64_t bytes) : limit_bytes_(bytes) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t held_bytes() const { return held_bytes_.load(); }
  // How often something did not fit.
  int64_t refusals() const { return refusals_.load(); }

 private:
  friend class HeldBytes;

  bool Take(int64_t bytes) {
    const int64_t before = held_bytes_.fetch_add(bytes);
    if (before + bytes <= limit_bytes_) return true;
    held_bytes_.fetch_sub(bytes);
    ++refusals_;
    return false;
  }
  // Takes as much as there is, at most `bytes`.
  int64_t TakeSome(int64_t bytes) {
    int64_t held = held_bytes_.load(), taken;
    do {
      taken = held >= limit_bytes_ ? 0 : std::min(bytes, limit_bytes_ - held);
    } while (!held_bytes_.compare_exchange_weak(held, held + taken));
    if (taken < bytes) ++refusals_;
    return taken;
  }

  const int64_t limit_bytes_;
  std::atomic<int64_t> held_bytes_{0};
  std::atomic<int64_t> refusals_{0};
};

// A part of a budget, held until this is destroyed. One thread at a time.
class HeldBytes {
 public:
  // Belongs to no budget: has all that is asked for.
  HeldBytes() = default;
  // `budget` must outlive it; nullptr: there is no limit.
  explicit HeldBytes(ByteBudget* budget) : budget_(budget) {}
  HeldBytes(HeldBytes&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HeldBytes() {
    if (budget_ != nullptr) budget_->held_bytes_.fetch_sub(bytes_);
  }

  // False, and nothing is taken, if so much is not left.
  bool Take(int64_t bytes) {
    if (budget_ != nullptr && !budget_->Take(bytes)) return false;
    bytes_ += bytes;
    return true;
  }
  // At most `bytes`: what there is. Returns how much that is.
  int64_t TakeSome(int64_t bytes) {
    const int64_t taken = budget_ == nullptr ? bytes : budget_->TakeSome(bytes);
    bytes_ += taken;
    return taken;
  }

 private:
  ByteBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
};

// The parts of the daemon's memory that programs can make it use. What is left is for the daemon itself: calls, the store,
// debug data, rings.
struct MemoryBudgets {
  // `limit_bytes`: of all of its memory.
  explicit MemoryBudgets(int64_t limit_bytes) : images(limit_bytes / 8), stacks(limit_bytes / 6), dumps(limit_bytes / 6) {}

  ByteBudget images;  // code that has no file, copied from memory
  ByteBudget stacks;  // of captures, as they come out of rings
  ByteBudget dumps;   // unwound and named, until they are written
};

}  // namespace stackd

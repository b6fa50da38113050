// A filter of system calls: rules by number, and what holds for the others.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace stackd {

enum class FilterAnswer { kAllow, kRefuse };  // refused: EPERM

// Calls by other ABIs (32 bits, x32) are always refused: their numbers mean something else.
class SeccompFilter {
 public:
  explicit SeccompFilter(FilterAnswer otherwise);

  void Add(std::span<const uint32_t> numbers, FilterAnswer answer);
  // Allows the call only with one of these values in the lower half of an argument, which must be a 32-bit one.
  void AllowOnlyWith(uint32_t number, int argument, std::initializer_list<uint32_t> values);
  // Allows the call only with none of these bits in the lower half of an argument.
  void AllowOnlyWithout(uint32_t number, int argument, uint32_t bits);

  // Binds this thread and what it starts, with no_new_privs. False if the kernel refused.
  bool Install() const;

 private:
  void Answer(FilterAnswer answer);

  const FilterAnswer otherwise_;
  std::vector<sock_filter> program_;
};

}  // namespace stackd

// What the machine code of a Go function refers to, and what becomes of the addresses of functions in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stackd {

struct GoReference {
  enum class Kind {
    kCall,     // call or jmp
    kStack,    // an address that is stored on the stack next: a closure that does not outlive the function
    kDefer,    // likewise, and marked as one that is deferred
    kAddress,  // any other address
  };
  uint64_t svma = 0;
  Kind kind = Kind::kCall;
  size_t end = 0;  // place in the code where the instruction ends
};

// In the order of the code. Reads any such bytes, also those within another instruction: too many make a function
// suspicious at most.
std::vector<GoReference> GoReferencesOf(std::span<const uint8_t> code, uint64_t svma);

// Which methods of interfaces the function calls, by their places in the table of methods.
struct GoInterfaceCalls {
  bool first = false, second = false;  // Lock and Unlock of sync.Locker
};
GoInterfaceCalls GoInterfaceCallsOf(std::span<const uint8_t> code);

// A call of the address in a register or in memory.
bool HasIndirectCall(std::span<const uint8_t> code);

}  // namespace stackd

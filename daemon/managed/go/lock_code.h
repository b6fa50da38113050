// Whether a goroutine may have a lock of package sync, by the code of its functions: Go's locks keep no owner.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/managed/go/go_binary.h"

namespace stackd {

// Reader for one process at one moment; one thread at a time. Functions are decoded once.
class GoLockCode {
 public:
  // `binary` must outlive it.
  GoLockCode(const GoBinary& binary, uint64_t bias, int64_t deadline_ns)
      : binary_(binary), bias_(bias), deadline_ns_(deadline_ns) {}

  // Whether the function of a frame may have a lock: it locks or unlocks, or calls a function that does only one of both.
  // True also where its code cannot be read.
  bool MayHold(uint64_t pc_avma);
  // Whether the function calls what its code does not name, which may lock: sync.Locker, a value of type func.
  bool CallsUnnamed(uint64_t pc_avma);

  // "sync.(*Mutex).Lock" and what it calls; "sync.(*Mutex).Unlock" likewise.
  static bool IsLock(std::string_view function);
  static bool IsUnlock(std::string_view function);
  // A function of Go's own library, whose goroutine holds no lock of the program there.
  static bool IsStandard(std::string_view function);

  // How deep a function may call another one that locks for it.
  static constexpr int kMaxDepth = 4;

 private:
  struct Code {
    bool known = false;
    bool locks = false, unlocks = false;  // itself, or what it defers
    bool calls_unnamed = false;
    std::vector<uint32_t> callees;             // entries
    std::optional<bool> leaks[kMaxDepth + 1];  // by depth of the search

    bool releases() const { return unlocks && !locks; }
  };

  const Code& CodeOf(const GoFunction& function);
  void AddCallee(const GoFunction& caller, const GoFunction& callee, bool is_called, Code* code);
  // Whether the function returns with a lock that it took.
  bool Leaks(uint32_t entry, int depth);
  std::optional<GoFunction> FunctionAt(uint32_t entry) const;

  const GoBinary& binary_;
  const uint64_t bias_;
  const int64_t deadline_ns_;
  std::unordered_map<uint32_t, Code> codes_;  // by entry; addresses of its values stay
};

}  // namespace stackd

// Names and lines of Java methods.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "daemon/base/shared_text.h"
#include "daemon/managed/hotspot/layout.h"
#include "daemon/managed/hotspot/process_memory.h"

namespace stackd::hotspot {

// Text of a Symbol, "java/util/ArrayList".
std::optional<std::string> SymbolText(ProcessMemory* memory, const Layout& layout, uint64_t symbol_avma);
// "java.util.ArrayList"; for a hidden class without the address that the VM puts after its name.
std::optional<std::string> ClassName(ProcessMemory* memory, const Layout& layout, uint64_t klass_avma);
// Entry of a constant pool that is a Symbol.
std::optional<std::string> PoolSymbol(ProcessMemory* memory, const Layout& layout, uint64_t pool_avma, uint32_t index);

struct JavaMethod {
  SharedText function;  // "java.util.ArrayList.add"
  SharedText file;      // "ArrayList.java"
  uint64_t code_avma = 0;
  uint32_t code_bytes = 0;
  bool has_lines = false;
};

// Methods of one process for one capture: methods move, and their memory is used again.
class Methods {
 public:
  Methods(ProcessMemory* memory, const Layout& layout) : memory_(memory), layout_(layout) {}

  // nullptr if there is none at this address.
  const JavaMethod* Find(uint64_t method_avma);
  // 0: not known.
  int32_t Line(const JavaMethod& method, int64_t bytecode_index);

 private:
  std::optional<JavaMethod> Read(uint64_t method_avma);

  ProcessMemory* memory_;
  const Layout& layout_;
  std::unordered_map<uint64_t, std::optional<JavaMethod>> methods_;
};

}  // namespace stackd::hotspot

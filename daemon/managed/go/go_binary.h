// What the file of a Go program says, stripped or not: its version, its functions, where the list of its goroutines is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/collect/process_files.h"
#include "daemon/managed/go/go_layout.h"
#include "daemon/managed/go/pclntab.h"
#include "daemon/module/module.h"

namespace stackd {

// A function at a place in the code, innermost of inlined ones first.
struct GoPlace {
  std::string function;
  std::string file;
  int32_t line = 0;
  bool inlined = false;     // into the next
  bool is_wrapper = false;  // made by the compiler
};

// Immutable after Open.
class GoBinary {
 public:
  // nullptr: not a Go program.
  // Fails with a sentence for a Go program that cannot be understood. `memory`, `bias`: of a process that runs it.
  static Result<std::shared_ptr<const GoBinary>> Open(const std::shared_ptr<const Module>& module,
                                                      const ProcessFiles& memory, uint64_t bias);
  // By its section headers alone, some microseconds.
  static bool IsGo(const Module& module);

  const std::string& version() const { return version_; }  // "go1.26.8"
  const GoLayout& layout() const { return *layout_; }
  const Pclntab& functions() const { return *functions_; }
  uint64_t text_svma() const { return text_svma_; }
  uint64_t text_end_svma() const { return text_end_svma_; }
  // Of runtime.allgs, a slice of pointers.
  uint64_t all_goroutines_svma() const { return all_goroutines_svma_; }

  std::optional<GoFunction> FindFunction(uint64_t svma) const;
  // What stands in the line that holds the instruction; empty: no Go code.
  std::vector<GoPlace> Places(uint64_t svma) const;

 private:
  friend class GoBinaryParser;
  GoBinary() = default;

  std::shared_ptr<const Module> module_;
  std::string version_;
  const GoLayout* layout_ = nullptr;
  std::optional<Pclntab> functions_;
  uint64_t text_svma_ = 0;
  uint64_t text_end_svma_ = 0;
  uint64_t function_data_svma_ = 0;
  uint64_t all_goroutines_svma_ = 0;
};

}  // namespace stackd

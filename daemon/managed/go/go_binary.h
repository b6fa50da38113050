// The version and the functions of a Go program, read from its file, stripped or not. And where a process has its code and
// the list of its goroutines.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/base/shared_text.h"
#include "daemon/managed/go/go_layout.h"
#include "daemon/managed/go/lock_releases.h"
#include "daemon/managed/go/pclntab.h"
#include "daemon/modules/loaded_sections.h"
#include "daemon/modules/module.h"
#include "daemon/process/process_files.h"

namespace stackd {

// A function at a place in the code, innermost of inlined ones first.
struct GoPlace {
  SharedText function;
  SharedText file;
  int32_t line = 0;
  bool inlined = false;     // into the next
  bool is_wrapper = false;  // made by the compiler
};

// What is the same for all processes that run the file, whatever they did to their memory. Thread-safe.
class GoFile {
 public:
  // Fails with a sentence for a Go program that cannot be understood, or not by the deadline.
  static Result<std::shared_ptr<const GoFile>> Open(const std::shared_ptr<const Module>& module, int64_t deadline_ns);
  // Looks at the section headers alone, in some microseconds.
  static bool IsGo(const Module& module);

  // How much memory it takes.
  uint64_t size_bytes() const { return functions_->size_bytes(); }

 private:
  friend class GoFileParser;
  friend class GoBinary;
  GoFile() = default;

  std::shared_ptr<const Module> module_;
  std::string version_;
  const GoLayout* layout_ = nullptr;
  std::optional<Pclntab> functions_;
  uint64_t table_svma_ = 0;  // of the functions
  std::vector<NamedSection> data_;
  GoFunction for_each_goroutine_;
  // Where the last process had the description of its code; the next is likely to have it there, which is checked.
  mutable std::atomic<uint64_t> module_svma_{0};
  mutable std::mutex releases_mutex_;
  mutable std::shared_ptr<const GoLockReleases> releases_;  // of the last that asked
  mutable int64_t no_releases_before_ns_ = 0;               // after a look that took too long
};

// As one process has it. Immutable.
class GoBinary {
 public:
  // Fails with a sentence.
  static Result<GoBinary> Find(const std::shared_ptr<const GoFile>& file, const ProcessFiles& memory, uint64_t bias,
                               int64_t deadline_ns);

  const std::string& version() const { return file_->version_; }  // "go1.26.8"
  const GoLayout& layout() const { return *file_->layout_; }
  const Pclntab& functions() const { return *file_->functions_; }
  uint64_t text_svma() const { return text_svma_; }
  uint64_t text_end_svma() const { return text_end_svma_; }
  // svma of runtime.allgs, a slice of pointers.
  uint64_t all_goroutines_svma() const { return all_goroutines_svma_; }

  std::optional<GoFunction> FindFunction(uint64_t svma) const;
  // Machine code of the function, from the file; empty if it cannot be read.
  std::vector<uint8_t> ReadCode(const GoFunction& function) const;
  // Who unlocks what, by the code of the whole program; empty if it cannot be read by the deadline.
  std::shared_ptr<const GoLockReleases> LockReleases(int64_t deadline_ns) const;
  // Functions and lines of the instruction; empty: no Go code.
  std::vector<GoPlace> Places(uint64_t svma) const;

 private:
  explicit GoBinary(std::shared_ptr<const GoFile> file) : file_(std::move(file)) {}

  bool FindModule(const ProcessFiles& memory, uint64_t bias, int64_t deadline_ns);
  bool FindModuleIn(const NamedSection& section, const ProcessFiles& memory, uint64_t bias);
  bool TakeModule(const uint8_t* module, uint64_t bias);
  bool FindGoroutines();

  std::shared_ptr<const GoFile> file_;
  uint64_t text_svma_ = 0;
  uint64_t text_end_svma_ = 0;
  uint64_t function_data_svma_ = 0;
  uint64_t all_goroutines_svma_ = 0;
};

}  // namespace stackd

// A capture of a process that has ended, out of its core file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/capture/capture.h"
#include "daemon/core/core_file.h"
#include "daemon/core/core_layout.h"
#include "daemon/core/core_memory.h"
#include "daemon/core/mapped_copies.h"
#include "daemon/modules/module_cache.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Reads one core. A program has one of these, as of AgentCode: it stays for as long as the program runs.
class CoreCapture {
 public:
  // `core` is the path of the file. `executable`: where the program is, if not where the core says; may be empty. Fails
  // with one sentence: kNotFound if a file is not there, kInvalidArgument if it is no such core, or another program.
  static Result<std::unique_ptr<CoreCapture>> Open(const std::string& core, const std::string& executable);

  // Threads, what is mapped, what threads wait for as far as memory tells, and how the process died. What runtimes keep in
  // memory is for others to read, with the memory of the capture.
  Result<std::shared_ptr<Capture>> Read(int64_t deadline_ns);

 private:
  CoreCapture(CoreFile core, CoreLayout layout) : core_(std::move(core)), layout_(std::move(layout)) {}

  void Describe(Capture* capture) const;
  void LoadModules(int64_t deadline_ns, Capture* capture);
  void NoteMissing(Capture* capture) const;

  const CoreFile core_;
  const CoreLayout layout_;
  std::unique_ptr<const MappedCopies> copies_;
  // Shared with what reads memory, which may be late.
  std::shared_ptr<const CoreMemory> memory_;
  Fd maps_;  // a file with the text of its maps
  std::shared_ptr<ProcessFiles> files_;
  ModuleCache modules_;
};

}  // namespace stackd

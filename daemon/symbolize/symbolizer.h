// Turns addresses in ELF files into functions with inlined frames, files and lines.
//
// A worker process with a memory limit reads symbols and DWARF. A hostile or huge ELF file may kill the worker, which costs
// names, never frames and never the daemon. The worker is then started again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/capture/source_frame.h"
#include "daemon/modules/module.h"

namespace stackd {

// The best source of names that a module has. Names as in stackd.v1.Module.symbols.
enum class SymbolQuality { kNone, kDynsym, kMiniDebugInfo, kSymtab, kDwarf };

struct AddressQuery {
  std::shared_ptr<const Module> module;
  uint64_t svma;  // already the address to look up (NativeFrame::lookup_avma minus bias)
};

struct SymbolizerOptions {
  // Folders of separate debug files: DIR/.build-id/xx/yyyy.debug and DIR/path/of/file.debug.
  std::vector<std::string> debug_dirs = {"/usr/lib/debug"};
  // A worker with nothing to do for so long is ended. What it has found stays in the cache.
  int64_t worker_idle_limit_ns = 10'000'000'000;
  // What all workers together may use.
  uint64_t worker_memory_limit_bytes = 208ull << 20;
  uint64_t cache_limit_bytes = 32ull << 20;
};

// Thread-safe.
class Symbolizer {
 public:
  explicit Symbolizer(SymbolizerOptions options);
  ~Symbolizer();

  // Returns one answer per query, in order, by `deadline_ns` (CLOCK_MONOTONIC). What is not known by then has the reason
  // "not named within the deadline". It is looked up in the background, so that a later call knows it.
  std::vector<std::shared_ptr<const SourceLocation>> Symbolize(std::span<const AddressQuery> queries, int64_t deadline_ns);

  // Names the variables at these addresses, from symbol tables alone; "" for those that are not known by `deadline_ns`.
  std::vector<std::string> NameVariables(std::span<const AddressQuery> queries, int64_t deadline_ns);

  // Looks addresses of the module up anew from now on: there may be debug files that were not there before.
  void Forget(const Module& module);

  // kNone until an address of the module was asked for.
  SymbolQuality Quality(const Module& module) const;

  // Times that the worker ended without being told to.
  int64_t worker_restarts() const;

  // Addresses that were asked for, since start: those that were known, and the others.
  int64_t cache_hits() const;
  int64_t cache_misses() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// If `argv` says that this process is the worker, runs it and returns its exit code; else -1. Called first in main(): the
// worker is this executable, started again.
int RunSymbolizeWorkerIfAsked(int argc, char** argv);

}  // namespace stackd

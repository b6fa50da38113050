// Code that HotSpot made at run time: compiled methods, its interpreter, its stubs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/managed/hotspot/layout.h"
#include "daemon/managed/hotspot/process_memory.h"

namespace stackd::hotspot {

struct CodeBlob {
  enum Kind : uint8_t { kStub, kInterpreter, kMethod };
  Kind kind = kStub;
  std::string name;  // as the VM calls it
  uint64_t blob_avma = 0;
  uint64_t code_avma = 0;
  uint64_t end_avma = 0;
  // With return address and saved rbp; 0: frames of it have no fixed size.
  uint64_t frame_bytes = 0;
  // Frames have that size from this address on.
  uint64_t frame_complete_avma = 0;
  // Set for kMethod.
  uint64_t method_avma = 0;
};

// A method at a place in compiled code, and those that it was compiled into.
struct Scope {
  uint64_t method_avma = 0;
  int64_t bytecode_index = -1;
};

class CodeCache {
 public:
  // nullopt if its variables cannot be read.
  static std::optional<CodeCache> Open(ProcessMemory* memory, const Layout& layout);

  // Whether Java code, or a stub, may be there.
  bool Holds(uint64_t avma) const { return avma - low_avma_ < high_avma_ - low_avma_; }
  // nullptr if there is none.
  const CodeBlob* Find(uint64_t pc_avma);
  // Innermost first; at least the method itself. `pc_avma` is a return address, or was interrupted: then it is the next
  // place that the VM knows of.
  std::vector<Scope> Scopes(const CodeBlob& method, uint64_t pc_avma);
  // Offset from the frame's stack pointer of the original return address, if the VM has redirected the activation to the
  // deoptimization handler; else nullopt.
  std::optional<uint64_t> OriginalPcOffset(const CodeBlob& method, uint64_t pc_avma);

  uint64_t call_stub_return_avma() const { return call_stub_return_avma_; }

 private:
  struct Heap {
    uint64_t low_avma, high_avma;
    uint64_t segments_avma, segment_count;
    uint64_t log2_segment_size;
  };

  CodeCache(ProcessMemory* memory, const Layout& layout) : memory_(memory), layout_(layout) {}
  static std::optional<CodeCache> OpenOnlyHeap(CodeCache cache);
  std::optional<Heap> ReadHeap(uint64_t heap_avma);
  std::optional<uint64_t> BlobAt(uint64_t pc_avma);
  std::optional<CodeBlob> ReadBlob(uint64_t blob_avma);
  // Where scopes of a method are described.
  struct ScopeTables {
    uint64_t pcs_avma, pcs_end_avma, data_avma, metadata_avma;
  };
  std::optional<ScopeTables> Tables(const CodeBlob& method);
  uint64_t ScopeOffset(const ScopeTables& tables, uint64_t pc_offset);

  ProcessMemory* memory_;
  const Layout& layout_;
  uint64_t low_avma_ = 0, high_avma_ = 0, call_stub_return_avma_ = 0;
  std::vector<Heap> heaps_;
  std::unordered_map<uint64_t, std::optional<CodeBlob>> blobs_;  // by address of the blob
};

}  // namespace stackd::hotspot

#include "daemon/ring/managed_trace_bytes.h"

namespace stackd {

size_t BytesOf(const std::vector<ManagedTrace>& traces) {
  size_t bytes = traces.capacity() * sizeof(ManagedTrace);
  for (const ManagedTrace& trace : traces) {
    bytes += trace.frames.capacity() * sizeof(ManagedTraceFrame) + trace.symbols.capacity() * sizeof(ManagedSymbol);
  }
  // All that one record said.
  if (!traces.empty() && traces.front().entries != nullptr) bytes += traces.front().entries->capacity();
  return bytes;
}

}  // namespace stackd

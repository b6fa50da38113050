#include "daemon/ring/managed_record.h"

#include <string.h>

#include <algorithm>
#include <utility>

namespace stackd {
namespace {

// More runtimes are not in one thread.
constexpr size_t kMaxTraces = 8;
// Of a name, which each frame of a thread gets a copy of. A multiple of 4, so that no character of UTF-16 or UCS-4 is cut.
constexpr size_t kMaxNameBytes = 1024;

template <typename T>
bool Take(std::span<const char> entry, T* value) {
  if (entry.size() < sizeof(T)) return false;
  memcpy(value, entry.data(), sizeof(T));
  return true;
}

bool AddSymbol(std::span<const char> entry, ManagedTrace* trace) {
  stackd_managed_symbol raw;
  if (!Take(entry, &raw)) return false;
  std::span<const char> texts = entry.subspan(sizeof(raw));
  if (texts.size() < uint64_t{raw.function_bytes} + raw.file_bytes + raw.table_bytes) return false;
  const auto text = [&](uint32_t size_bytes, size_t max_bytes) {
    std::string result(texts.data(), std::min<size_t>(size_bytes, max_bytes));
    texts = texts.subspan(size_bytes);
    return result;
  };
  ManagedSymbol symbol{.key = raw.key, .first_line = raw.first_line, .table_format = raw.table_format};
  symbol.function = text(raw.function_bytes, kMaxNameBytes);
  symbol.file = text(raw.file_bytes, kMaxNameBytes);
  symbol.table = text(raw.table_bytes, raw.table_bytes);
  trace->symbols.push_back(std::move(symbol));
  return true;
}

bool Add(const stackd_managed_entry& header, std::span<const char> entry, std::vector<ManagedTrace>* traces) {
  if (header.kind == STACKD_MANAGED_RUNTIME) {
    stackd_managed_runtime raw;
    if (!Take(entry, &raw) || traces->size() == kMaxTraces) return false;
    traces->push_back({.runtime = raw.runtime,
                       .flags = header.flags,
                       .status = raw.status,
                       .version = raw.version,
                       .instance_avma = raw.instance});
    return true;
  }
  if (traces->empty()) return false;
  ManagedTrace& trace = traces->back();
  if (header.kind == STACKD_MANAGED_SYMBOL) return AddSymbol(entry, &trace);
  if (header.kind != STACKD_MANAGED_FRAME) return true;  // of a later agent
  stackd_managed_frame raw;
  if (!Take(entry, &raw)) return false;
  trace.frames.push_back({.flags = header.flags, .anchor_avma = raw.anchor, .key = raw.key, .position = raw.position});
  return true;
}

}  // namespace

std::vector<ManagedTrace> ParseManaged(std::span<const char> entries) {
  std::vector<ManagedTrace> traces;
  while (!entries.empty()) {
    stackd_managed_entry header;
    if (!Take(entries, &header)) break;
    if (header.size_bytes < sizeof(header) || header.size_bytes % 8 != 0 || header.size_bytes > entries.size()) break;
    if (!Add(header, entries.first(header.size_bytes), &traces)) break;
    entries = entries.subspan(header.size_bytes);
  }
  return traces;
}

}  // namespace stackd

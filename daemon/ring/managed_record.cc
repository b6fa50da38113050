#include "daemon/ring/managed_record.h"

#include <string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

namespace stackd {
namespace {

// More runtimes are not in one thread.
constexpr size_t kMaxTraces = 8;
// Limit for a name, since each frame of a thread gets a copy. A multiple of 4: no character of UTF-16 or UCS-4 is cut.
constexpr size_t kMaxNameBytes = 1024;

template <typename T>
bool Take(std::string_view entry, T* value) {
  if (entry.size() < sizeof(T)) return false;
  memcpy(value, entry.data(), sizeof(T));
  return true;
}

// A text that the agent could not read is all zeros.
std::string_view WithoutUnread(std::string_view text) {
  return text.find_first_not_of('\0') == text.npos ? std::string_view() : text;
}

bool AddSymbol(std::string_view entry, ManagedTrace* trace) {
  stackd_managed_symbol raw;
  if (!Take(entry, &raw)) return false;
  std::string_view texts = entry.substr(sizeof(raw));
  if (texts.size() < uint64_t{raw.function_bytes} + raw.file_bytes + raw.table_bytes) return false;
  const auto text = [&](uint32_t size_bytes, size_t max_bytes) {
    const std::string_view result = texts.substr(0, std::min<size_t>(size_bytes, max_bytes));
    texts.remove_prefix(size_bytes);
    return result;
  };
  ManagedSymbol symbol{.key = raw.key, .first_line = raw.first_line, .table_format = raw.table_format};
  symbol.function = WithoutUnread(text(raw.function_bytes, kMaxNameBytes));
  symbol.file = WithoutUnread(text(raw.file_bytes, kMaxNameBytes));
  symbol.table = text(raw.table_bytes, raw.table_bytes);
  trace->symbols.push_back(symbol);
  return true;
}

bool Add(const stackd_managed_entry& header, std::string_view entry, const std::shared_ptr<const std::string>& entries,
         std::vector<ManagedTrace>* traces) {
  if (header.kind == STACKD_MANAGED_RUNTIME) {
    stackd_managed_runtime raw;
    if (!Take(entry, &raw) || traces->size() == kMaxTraces) return false;
    traces->push_back({.runtime = raw.runtime,
                       .flags = header.flags,
                       .status = raw.status,
                       .version = raw.version,
                       .instance_avma = raw.instance,
                       .frames = {},
                       .symbols = {},
                       .entries = entries});
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

std::vector<ManagedTrace> ParseManaged(std::span<const char> record) {
  std::vector<ManagedTrace> traces;
  if (record.empty()) return traces;
  const auto entries = std::make_shared<const std::string>(record.data(), record.size());
  for (std::string_view rest = *entries; !rest.empty();) {
    stackd_managed_entry header;
    if (!Take(rest, &header)) break;
    if (header.size_bytes < sizeof(header) || header.size_bytes % 8 != 0 || header.size_bytes > rest.size()) break;
    if (!Add(header, rest.substr(0, header.size_bytes), entries, &traces)) break;
    rest.remove_prefix(header.size_bytes);
  }
  return traces;
}

}  // namespace stackd

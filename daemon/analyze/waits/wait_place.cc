#include "daemon/analyze/waits/wait_place.h"

#include <algorithm>

#include "daemon/analyze/waits/wait_words.h"
#include "daemon/base/printable.h"

namespace stackd {
namespace {

// A hostile process has as many locks as it likes, and each name is a question to the symbol worker.
constexpr size_t kMaxNames = 2000;
// Anonymous mappings that may lie between a file's mapping and the address that belongs to its .bss: changes of
// permissions cut it in pieces.
constexpr int kMaxBssPieces = 4;

std::string BaseName(std::string_view path) { return PrintableText(path.substr(path.rfind('/') + 1)); }

bool IsSharedMemory(std::string_view path) {
  return path.starts_with("/dev/shm/") || path.starts_with("/memfd:") || path.starts_with("/dev/zero") ||
         path.starts_with("/SYSV") || path.starts_with("/[aio]");
}

}  // namespace

WaitPlaces::WaitPlaces(const Capture& capture, const DataSymbolLookup& data_symbols, const std::set<uint64_t>& avmas)
    : capture_(capture), stack_owners_(capture) {
  if (capture.map == nullptr) return;
  std::vector<DataAddress> in_data;
  std::vector<uint64_t> avma_of_data;
  for (uint64_t avma : avmas) {
    const InModule in = FindModule(avma);
    if (in.address.module == nullptr) {
      places_[avma] = OutsideOfModules(avma);
      continue;
    }
    places_[avma] = (in.is_bss ? ".bss of " : ".data of ") + BaseName(in.address.module->path());
    if (in_data.size() == kMaxNames) continue;
    in_data.push_back(in.address);
    avma_of_data.push_back(avma);
  }
  if (!data_symbols || in_data.empty()) return;
  const std::vector<std::string> names = data_symbols(in_data);
  for (size_t i = 0; i < std::min(names.size(), in_data.size()); ++i) {
    if (!names[i].empty()) places_[avma_of_data[i]] += ": " + PrintableText(names[i]);
  }
}

WaitPlaces::InModule WaitPlaces::FindModule(uint64_t avma) const {
  const auto& mappings = capture_.map->mappings();
  auto mapping = std::ranges::upper_bound(mappings, avma, {}, &Mapping::start_avma);
  for (int piece = 0; piece <= kMaxBssPieces && mapping != mappings.begin(); ++piece) {
    --mapping;
    if (mapping->module == nullptr) continue;
    const uint64_t svma = avma - mapping->bias;
    for (const Segment& segment : mapping->module->segments()) {
      if (svma < segment.svma || svma - segment.svma >= segment.memory_bytes) continue;
      return {{mapping->module, svma}, svma - segment.svma >= segment.file_bytes};
    }
    return {};
  }
  return {};
}

std::string WaitPlaces::OutsideOfModules(uint64_t avma) const {
  const Mapping* mapping = capture_.map->Find(avma);
  if (mapping == nullptr) return "";
  if (mapping->path == "[heap]") return "heap";
  if (IsSharedMemory(mapping->path)) return "shared memory";
  if (mapping->path.starts_with('/')) return "file " + BaseName(mapping->path);
  if (const ThreadCapture* owner = stack_owners_.Of(*mapping, avma)) {
    v1::Thread thread;
    thread.set_tid(owner->tid);
    thread.set_name(owner->name);
    return "stack of " + ThreadWithTid(thread, capture_.process.pid);
  }
  if (mapping->path.starts_with('[')) return PrintableText(mapping->path);
  return "anonymous memory";
}

const std::string& WaitPlaces::Of(uint64_t avma) const {
  static const std::string kNowhere;
  const auto place = places_.find(avma);
  return place == places_.end() ? kNowhere : place->second;
}

int32_t WaitPlaces::OwnerOfStack(uint64_t avma) const {
  const Mapping* mapping = capture_.map == nullptr ? nullptr : capture_.map->Find(avma);
  const ThreadCapture* owner = mapping == nullptr ? nullptr : stack_owners_.Of(*mapping, avma);
  return owner == nullptr ? 0 : owner->tid;
}

bool WaitPlaces::IsStatic(uint64_t avma) const {
  return capture_.map != nullptr && FindModule(avma).address.module != nullptr;
}

}  // namespace stackd

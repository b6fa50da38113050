#include "daemon/pipeline/perf_maps.h"

#include <algorithm>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

// Time to open a perf map and to read it.
constexpr int64_t kReadNs = 300 * kNsPerMs;
constexpr int64_t kMaxBytes = 16 << 20;
constexpr int64_t kMaxSymbols = 200'000;

// One process leaves most of the memory to others.
PerfMapLimits LimitsOf(ByteBudget* memory) {
  if (memory == nullptr) return {.max_bytes = kMaxBytes, .max_symbols = kMaxSymbols};
  const int64_t most_bytes = memory->limit_bytes() / 8;
  const int64_t most_symbols = most_bytes / static_cast<int64_t>(PerfMap::kSymbolBytes);
  return {.max_bytes = std::min(kMaxBytes, most_bytes),
          .max_symbols = static_cast<size_t>(std::min(kMaxSymbols, most_symbols)),
          .memory = memory};
}

bool HasCodeOutsideOfFiles(const Capture& capture) {
  return capture.map != nullptr && std::ranges::any_of(capture.map->mappings(), [](const Mapping& mapping) {
           return mapping.executable && mapping.module == nullptr && mapping.path != "[vsyscall]";
         });
}

}  // namespace

PerfMaps::PerfMaps(const Collector* collector, ByteBudget* memory) : collector_(collector), limits_(LimitsOf(memory)) {}

std::shared_ptr<const PerfMapFile> PerfMaps::Read(const std::string& process_id, int64_t deadline_ns) const {
  const auto file = std::make_shared<PerfMapFile>(limits_);
  const auto update = [file](const Fd& opened) { file->Update(opened); };
  if (collector_->ReadPerfMap(process_id, std::min(deadline_ns, MonotonicNs() + kReadNs), update)) return file;
  // The other one may still be written to.
  const auto late = std::make_shared<PerfMapFile>();
  late->SetLate();
  return late;
}

std::shared_ptr<const PerfMapFile> PerfMaps::ReadOfCrash(const Capture& crash, int64_t deadline_ns) const {
  const bool is_held = !crash.crash->from_spool;
  return is_held && HasCodeOutsideOfFiles(crash) ? Read(crash.process.id, deadline_ns) : nullptr;
}

}  // namespace stackd

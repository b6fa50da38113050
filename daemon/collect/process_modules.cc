#include "daemon/collect/process_modules.h"

#include <utility>

#include "daemon/collect/shared_word.h"

namespace stackd {

ProcessModules::ProcessModules(const AgentProcess* process, Ring* ring, ModuleCache* cache, std::string executable,
                               ByteBudget* images)
    : process_(process),
      ring_(ring),
      loader_(
          &process->files(), cache, std::move(executable),
          [this](const std::vector<std::string>& paths, int64_t deadline_ns) { return OpenFiles(paths, deadline_ns); },
          [this](uint64_t avma, uint64_t size_bytes, int64_t deadline_ns) {
            return ReadImage(avma, size_bytes, deadline_ns);
          },
          images) {}

std::shared_ptr<const AddressMap> ProcessModules::Map() const {
  std::lock_guard lock(mutex_);
  return map_;
}

RwlockLayout ProcessModules::LockLayout() const {
  const auto map = Map();
  return map == nullptr ? RwlockLayout::kCurrent : RwlockLayoutOf(*map);
}

void ProcessModules::Load(int64_t deadline_ns) {
  notes_.clear();
  auto map = loader_.Load(deadline_ns, &notes_);
  if (map) {
    std::lock_guard lock(mutex_);
    map_ = *map;
  } else {
    // The former map serves for the stacks of a process that has just ended.
    notes_.push_back("its memory map could not be read: " + map.error().message);
  }
  // Also if it could not be had: no thread of the process is to wait for it any more.
  SetSharedWord(&ring_->header()->modules_known, 1);
}

void ProcessModules::LoadIfChanged(int64_t deadline_ns) {
  const uint32_t generation = __atomic_load_n(&ring_->header()->maps_generation, __ATOMIC_ACQUIRE);
  if (generation == generation_) return;
  Load(deadline_ns);
  generation_ = generation;
}

std::vector<std::optional<Fd>> ProcessModules::OpenFiles(const std::vector<std::string>& paths, int64_t deadline_ns) const {
  if (process_->waker().is_filtered()) return std::vector<std::optional<Fd>>(paths.size());
  return process_->questions().OpenFiles(paths, deadline_ns);
}

Result<std::vector<uint8_t>> ProcessModules::ReadImage(uint64_t avma, uint64_t size_bytes, int64_t deadline_ns) const {
  if (process_->share() != Share::kNames || !process_->TellsWaits() || process_->waker().is_filtered()) {
    return Error(Code::kFailedPrecondition, "the process shares no memory");
  }
  auto bytes = process_->questions().ReadImage(avma, size_bytes, deadline_ns);
  if (bytes) process_->files().CountMemoryRead(size_bytes);
  return bytes;
}

}  // namespace stackd

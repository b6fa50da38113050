#include "daemon/outside/outside_capture.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/process/module_loader.h"
#include "daemon/ring/recording.h"

namespace stackd {
namespace {

// Opened by this program: there is nothing to wait for.
std::vector<std::optional<Fd>> OpenAll(const LiveProcess& process, const std::vector<std::string>& paths) {
  std::vector<std::optional<Fd>> files;
  for (const std::string& path : paths) files.emplace_back(process.OpenMapped(path));
  return files;
}

}  // namespace

OutsideCapture::OutsideCapture(LiveProcess process)
    : process_(std::make_shared<const LiveProcess>(std::move(process))),
      memory_(std::make_shared<const MemoryReader>(process_->files())) {}

Result<std::unique_ptr<OutsideCapture>> OutsideCapture::Open(const std::string& proc, int32_t pid) {
  auto process = LiveProcess::Open(proc, pid);
  if (!process) return std::unexpected(process.error());
  return std::unique_ptr<OutsideCapture>(new OutsideCapture(std::move(*process)));
}

void OutsideCapture::LoadModules(int64_t deadline_ns, Capture* capture) {
  ModuleLoader loader(
      process_->files().get(), &modules_, capture->process.executable,
      [this](const std::vector<std::string>& paths, int64_t) { return OpenAll(*process_, paths); },
      [](uint64_t, uint64_t, int64_t) -> Result<std::vector<uint8_t>> {
        return Error(Code::kFailedPrecondition, "its memory is read by a file");
      });
  auto map = loader.Load(deadline_ns, &capture->notes);
  if (map) {
    capture->map = *map;
    return;
  }
  capture->map = std::make_shared<const AddressMap>(std::vector<Mapping>{});
  capture->notes.push_back("its memory map could not be read: " + map.error().message);
}

void OutsideCapture::ReadThreads(const OutsideRequest& request, Capture* capture) {
  // A reader of the process's memory may have to wait. Then the dump goes on without the threads.
  auto counters = std::make_shared<CollectorCounters>();
  auto recording = std::make_shared<Recording>(AgentCode::kSeq, counters.get());
  const int64_t begin_ns = MonotonicNs();
  const bool read = memory_->Run(request.deadline_ns + kNsPerSecond / 4,
                                 [=, threads = threads_, process = process_](const ProcessFiles&) {
                                   threads->ReadAll(request.may_stop, request.deadline_ns, recording.get());
                                 });
  capture->duration_ns = MonotonicNs() - begin_ns;
  if (!read) {
    recording = std::make_shared<Recording>(AgentCode::kSeq, counters.get());
    for (const int32_t tid : process_->files()->Tids()) recording->Add(static_cast<uint32_t>(tid));
    capture->notes.push_back("its threads could not be read in time: the kernel holds up whoever reads its memory");
  } else {
    threads_->AddNotes(&capture->notes);
  }
  recording->AddNotes(&capture->notes);
  capture->threads = recording->TakeThreads();
  capture->held = recording->TakeHeld();
  const auto is_late = [](const ThreadCapture& thread) { return thread.status == ThreadStatus::kTimedOut; };
  capture->partial = !read || std::ranges::any_of(capture->threads, is_late);
  if (process_->files()->HasNoMemoryLeft()) {
    capture->partial = true;
    capture->notes.push_back("the process ended during the dump, or became another program");
  }
}

Result<std::shared_ptr<Capture>> OutsideCapture::Read(const OutsideRequest& request) {
  auto capture = std::make_shared<Capture>();
  capture->begin_wall_ns = WallNs();
  capture->process = process_->Describe();
  capture->memory = memory_;
  // There is one reader at a time.
  waits_.reset();
  threads_.reset();
  auto threads = ThreadReader::Start(*process_, request.max_stack_bytes);
  if (!threads) return std::unexpected(threads.error());
  threads_ = std::move(*threads);
  waits_ = std::make_unique<OutsideWaits>(process_.get(), memory_.get(), threads_.get());
  LoadModules(request.deadline_ns, capture.get());
  ReadThreads(request, capture.get());
  if (request.may_stop) {
    for (const Obstacle& obstacle : process_->obstacles()) {
      capture->notes.push_back(obstacle.text + ": " + obstacle.way_out);
    }
  }
  waits_->Add(request.deadline_ns, capture.get());
  capture->memory_read_bytes = process_->files()->memory_read_bytes();
  return capture;
}

}  // namespace stackd

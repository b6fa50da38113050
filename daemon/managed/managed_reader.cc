#include "daemon/managed/managed_reader.h"

#include <algorithm>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/managed/cpython/cpython_reader.h"
#include "daemon/managed/go/go_reader.h"
#include "daemon/managed/hotspot/hotspot_reader.h"
#include "daemon/managed/php/php_reader.h"
#include "daemon/managed/ruby/ruby_reader.h"
#include "daemon/managed/task_table/task_table_reader.h"
#include "daemon/managed/v8/v8_reader.h"
#include "daemon/process/memory_reader.h"

namespace stackd {
namespace {

using Readers = std::vector<std::unique_ptr<RuntimeReader>>;

// What the agent wrote is decoded without waiting for anything.
constexpr int64_t kDecodeNs = 50 * kNsPerMs;

ManagedFacts Ask(const Readers& readers, const RuntimeInput& input) {
  ManagedFacts facts;
  for (const auto& reader : readers) reader->Read(input, &facts);
  return facts;
}

}  // namespace

ManagedReader::ManagedReader() {
  auto readers = std::make_shared<Readers>();
  readers->push_back(std::make_unique<CpythonReader>());
  readers->push_back(std::make_unique<V8Reader>());
  readers->push_back(MakeGoReader());
  readers->push_back(std::make_unique<HotSpotReader>());
  readers->push_back(std::make_unique<PhpReader>());
  readers->push_back(std::make_unique<RubyReader>());
  readers->push_back(std::make_unique<TaskTableReader>());
  readers_ = std::move(readers);
}

ManagedReader::~ManagedReader() = default;

void ManagedReader::Read(int64_t deadline_ns, const std::shared_ptr<Capture>& capture, bool frames_only) const {
  // A reader that is late still looks at them when `capture` has other facts.
  const auto reports =
      std::make_shared<const std::vector<RuntimeReport>>(std::exchange(capture->managed, ManagedFacts()).reports);
  bool late = false;
  if (capture->memory != nullptr) {
    const int64_t read_before_bytes = capture->memory->read_bytes();
    // It may go on after its deadline: what it looks at and what it writes to is its own or stays as it is.
    auto facts = std::make_shared<ManagedFacts>();
    const bool read = capture->memory->Run(
        deadline_ns,
        [=, readers = readers_, captured = std::shared_ptr<const Capture>(capture)](const ProcessFiles& memory) {
          *facts = Ask(*readers, {*captured, &memory, deadline_ns, *reports, frames_only});
        });
    if (read) capture->managed = std::move(*facts);
    late = !read;
    capture->memory_read_bytes += capture->memory->read_bytes() - read_before_bytes;
  }
  if (late) capture->notes.push_back("the memory of its runtimes could not be read in time: their frames may be missing");
  if (late || capture->memory == nullptr) {
    const int64_t decoded_by_ns = std::max(deadline_ns, MonotonicNs() + kDecodeNs);
    capture->managed = Ask(*readers_, {*capture, nullptr, decoded_by_ns, *reports, frames_only});
  }
  if (late) return;
  for (ThreadCapture& thread : capture->threads) thread.traces = {};
  capture->task_table = {};
}

std::optional<std::vector<ManagedWait>> ManagedReader::ReadWaits(const std::shared_ptr<const Capture>& capture,
                                                                 std::vector<ThreadWait> sleeping,
                                                                 int64_t deadline_ns) const {
  if (capture->memory == nullptr) return std::nullopt;
  auto waits = std::make_shared<std::vector<ManagedWait>>();
  const bool read = capture->memory->Run(deadline_ns, [=, readers = readers_, known = capture->managed.waits,
                                                       sleeping = std::move(sleeping)](const ProcessFiles& memory) {
    for (const auto& reader : *readers) reader->ReadWaits({*capture, known, sleeping, memory, deadline_ns}, waits.get());
  });
  if (!read) return std::nullopt;
  return std::move(*waits);
}

std::optional<ManagedFacts> ManagedReader::ReadGoroutines(const std::shared_ptr<const Capture>& outline,
                                                          int64_t deadline_ns) const {
  const auto facts = std::make_shared<ManagedFacts>();
  const auto read = [=, readers = readers_](const ProcessFiles* memory) {
    for (const auto& reader : *readers) reader->ReadGoroutines({*outline, memory, deadline_ns}, facts.get());
  };
  if (outline->memory == nullptr) {
    read(nullptr);
  } else if (!outline->memory->Run(deadline_ns, [read](const ProcessFiles& memory) { read(&memory); })) {
    return std::nullopt;
  }
  return std::move(*facts);
}

}  // namespace stackd

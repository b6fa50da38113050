#include "daemon/core/core_capture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/regular_file.h"
#include "daemon/core/core_threads.h"
#include "daemon/modules/address_map.h"
#include "daemon/process/memory_reader.h"
#include "daemon/process/module_loader.h"
#include "daemon/process/process_description.h"
#include "daemon/process/wait_facts.h"
#include "stackd/wire.h"

namespace stackd {
namespace {

constexpr size_t kMaxMissing = 8;  // that are named

Result<Fd> FileWith(std::string_view text) {
  Fd file(memfd_create("stackd-maps", MFD_CLOEXEC));
  while (file.valid() && !text.empty()) {
    const ssize_t written = write(file.get(), text.data(), text.size());
    if (written <= 0) break;
    text.remove_prefix(static_cast<size_t>(written));
  }
  if (!file.valid() || !text.empty()) return Error(Code::kResourceExhausted, "there is no memory for the maps of the core");
  return file;
}

}  // namespace

Result<std::unique_ptr<CoreCapture>> CoreCapture::Open(const std::string& path, const std::string& executable) {
  Fd file = OpenRegularFile(path, /*follow_link=*/true);
  if (!file.valid()) {
    if (access(path.c_str(), F_OK) != 0) return Error(Code::kNotFound, "there is no file " + path);
    return Error(Code::kPermissionDenied, path + " is no regular file, or may not be read");
  }
  auto core = CoreFile::Open(std::move(file), path);
  if (!core) return std::unexpected(core.error());
  CoreLayout layout = LayOut(*core);
  const std::string maps = MapsText(*core, layout);
  std::unique_ptr<CoreCapture> capture(new CoreCapture(std::move(*core), std::move(layout)));
  auto copies = MappedCopies::Open(capture->core_, capture->layout_, executable);
  if (!copies) return std::unexpected(copies.error());
  capture->copies_ = std::make_unique<const MappedCopies>(std::move(*copies));
  capture->memory_ = std::make_shared<const CoreMemory>(capture->core_, capture->layout_, *capture->copies_);
  auto maps_file = FileWith(maps);
  if (!maps_file) return std::unexpected(maps_file.error());
  capture->maps_ = std::move(*maps_file);
  capture->files_ = std::make_shared<ProcessFiles>();
  capture->files_->SetImage(
      [memory = capture->memory_](uint64_t avma, std::span<uint8_t> bytes) { return memory->Read(avma, bytes); }, maps);
  return capture;
}

void CoreCapture::Describe(Capture* capture) const {
  stackd_hello hello{};
  hello.abi_version = STACKD_ABI_VERSION;
  hello.share = STACKD_SHARE_MEMORY;
  hello.pid = core_.pid();
  core_.argv0().copy(hello.argv0, sizeof(hello.argv0) - 1);
  if (layout_.executable >= 0) {
    layout_.files[static_cast<size_t>(layout_.executable)].path.copy(hello.exe, sizeof(hello.exe) - 1);
  }
  // When it started, and on which machine, the core does not say.
  capture->process = DescribeProcess(hello, static_cast<uid_t>(core_.uid()), std::to_string(core_.pid()) + "-0");
  capture->process.start_wall_ns = 0;
  capture->process.thread_count = static_cast<int32_t>(core_.threads().size());
  if (capture->process.display_name.empty()) capture->process.display_name = core_.name();
}

void CoreCapture::LoadModules(int64_t deadline_ns, Capture* capture) {
  const auto open_all = [this](const std::vector<std::string>& paths, int64_t) {
    std::vector<std::optional<Fd>> files;
    for (const std::string& path : paths) files.emplace_back(copies_->Duplicate(path));
    return files;
  };
  ModuleLoader loader(files_.get(), &modules_, capture->process.executable, open_all,
                      [](uint64_t, uint64_t, int64_t) -> Result<std::vector<uint8_t>> {
                        return Error(Code::kFailedPrecondition, "its memory is read by a file");
                      });
  // What it says of missing files is said better by those who have looked for them.
  std::vector<std::string> unused;
  auto map = loader.Load(deadline_ns, &unused);
  capture->map = map ? *map : std::make_shared<const AddressMap>(std::vector<Mapping>{});
  capture->notes.insert(capture->notes.end(), copies_->notes().begin(), copies_->notes().end());
  NoteMissing(capture);
}

void CoreCapture::NoteMissing(Capture* capture) const {
  size_t missing = 0;
  for (int32_t i = 0; i < std::ssize(layout_.files); i++) {
    const std::string& problem = copies_->problem(i);
    if (!problem.empty() && ++missing <= kMaxMissing) capture->notes.push_back(problem);
  }
  if (missing > kMaxMissing) {
    capture->notes.push_back("code of " + std::to_string(missing - kMaxMissing) + " more files could not be had");
  }
}

Result<std::shared_ptr<Capture>> CoreCapture::Read(int64_t deadline_ns) {
  auto capture = std::make_shared<Capture>();
  const int64_t begin_ns = MonotonicNs();
  capture->begin_wall_ns = core_.written_wall_ns();
  capture->notes = core_.notes();
  capture->partial = !core_.notes().empty();
  capture->memory = std::make_shared<const MemoryReader>(files_);
  Describe(capture.get());
  stackd_read_memory_by_pieces(&memory_->pieces());
  LoadModules(deadline_ns, capture.get());
  if (auto read = ReadCoreThreads(core_, maps_.get(), deadline_ns, capture.get()); !read)
    return std::unexpected(read.error());
  AddCrashOfCore(core_, *files_, capture.get());
  // A core is of one moment: threads that wait in a circle there did so at once.
  AddWaitFacts(*capture->memory, deadline_ns, capture.get());
  capture->duration_ns = MonotonicNs() - begin_ns;
  capture->memory_read_bytes = files_->memory_read_bytes();
  return capture;
}

}  // namespace stackd

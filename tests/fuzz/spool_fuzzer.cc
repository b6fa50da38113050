// The input is a file of the spool. What is taken of it must hold together, and its modules must be the files it names.
#include <stdlib.h>

#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/crashes/find_modules.h"
#include "daemon/crashes/spool.h"

namespace stackd {
namespace {

void Check(bool holds) {
  if (!holds) abort();
}

void CheckThread(const ThreadRecord& thread) {
  uint64_t kept = 0;
  for (uint64_t mask : thread.masks) kept += static_cast<uint64_t>(std::popcount(mask));
  Check(thread.words.size() == kept);
  Check(thread.masks.size() == (thread.stack_words + 63) / 64 + (thread.outer_words + 63) / 64);
  Check(thread.stack_words <= kMaxStackBytes / 8 && thread.outer_words <= kMaxStackBytes / 8);
}

}  // namespace
}  // namespace stackd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stackd;
  auto crash = ParseSpoolFile(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!crash) {
    Check(crash.error().code == Code::kDataLoss || crash.error().code == Code::kUnavailable);
    return 0;
  }
  Check(crash->process.pid > 0 && crash->wall_ns >= 0 && crash->record.time_ns >= 0);
  if (crash->record.thread) CheckThread(*crash->record.thread);
  Check(crash->images.size() <= STACKD_SPOOL_MAX_IMAGES);
  for (const SpoolImage& image : crash->images) Check(image.bytes.size() <= STACKD_SPOOL_IMAGE_BYTES);
  static ModuleCache cache;
  std::vector<Mapping> mappings = ParseMaps(crash->maps);
  std::vector<std::string> notes;
  FindModules(crash->images, &cache, &mappings, &notes);
  for (const Mapping& mapping : mappings) Check(mapping.module == nullptr || mapping.module->path() == mapping.path);
  Check(notes.size() <= 1);
  return 0;
}

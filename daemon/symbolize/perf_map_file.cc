#include "daemon/symbolize/perf_map_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace stackd {
namespace {

constexpr int64_t kMaxBytes = 64 << 20;

std::string ReadAll(const Fd& file, int64_t size_bytes) {
  std::string text(static_cast<size_t>(std::clamp<int64_t>(size_bytes, 0, kMaxBytes)), '\0');
  size_t have_bytes = 0;
  while (have_bytes < text.size()) {
    const ssize_t read_bytes =
        pread(file.get(), text.data() + have_bytes, text.size() - have_bytes, static_cast<off_t>(have_bytes));
    if (read_bytes <= 0) break;
    have_bytes += static_cast<size_t>(read_bytes);
  }
  text.resize(have_bytes);
  return text;
}

}  // namespace

void PerfMapFile::Update(const Fd& file) {
  struct stat info{};
  if (file.valid() && fstat(file.get(), &info) != 0) info = {};
  if (info.st_size == size_bytes_) return;
  size_bytes_ = info.st_size;
  names_ = PerfMap(size_bytes_ == 0 ? "" : ReadAll(file, size_bytes_));
}

std::string PerfMapFile::Problem() const {
  if (size_bytes_ > kMaxBytes) {
    return "its perf map has " + std::to_string(size_bytes_) + " bytes: the first " + std::to_string(kMaxBytes) +
           " are read, and code that was made later has no name";
  }
  if (names_.left_out() == 0) return "";
  return std::to_string(names_.left_out()) +
         " lines of its perf map name no code: they are no such lines, or there was no room";
}

}  // namespace stackd

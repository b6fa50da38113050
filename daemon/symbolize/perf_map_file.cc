#include "daemon/symbolize/perf_map_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace stackd {
namespace {

std::string ReadAll(const Fd& file, int64_t size_bytes) {
  std::string text(static_cast<size_t>(size_bytes), '\0');
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

bool PerfMapFile::Read(const Fd& file) {
  HeldBytes held(limits_.memory);
  const int64_t read_bytes = std::min(size_bytes_, limits_.max_bytes);
  if (!held.Take(read_bytes)) return false;
  std::string text = ReadAll(file, read_bytes);
  const auto lines = static_cast<size_t>(std::ranges::count(text, '\n'));
  if (!held.Take(static_cast<int64_t>(std::min(lines, limits_.max_symbols) * PerfMap::kSymbolBytes))) return false;
  names_ = std::make_unique<const PerfMap>(std::move(text), limits_.max_symbols);
  held_ = std::move(held);
  return true;
}

void PerfMapFile::Update(const Fd& file) {
  struct stat info{};
  if (file.valid() && fstat(file.get(), &info) != 0) info = {};
  if (info.st_size == size_bytes_) return;
  size_bytes_ = info.st_size;
  names_.reset();
  held_ = HeldBytes();
  has_room_ = size_bytes_ <= 0 || Read(file);
}

std::string PerfMapFile::Problem() const {
  if (is_late_) return "its perf map was not read in time: code that a runtime has made has no name";
  if (!has_room_) {
    return "its perf map has " + std::to_string(size_bytes_) +
           " bytes, for which there is no memory now: code that a runtime has made has no name";
  }
  if (size_bytes_ > limits_.max_bytes) {
    return "its perf map has " + std::to_string(size_bytes_) + " bytes: the first " + std::to_string(limits_.max_bytes) +
           " are read, and code that was made later has no name";
  }
  if (names_ == nullptr || names_->left_out() == 0) return "";
  return std::to_string(names_->left_out()) +
         " lines of its perf map name no code: they are no such lines, or there was no room";
}

}  // namespace stackd

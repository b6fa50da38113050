#include "daemon/process/file_locks.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>

namespace stackd {
namespace {

// "1: -> FLOCK  ADVISORY  WRITE 42 fe:00:17 0 EOF": no line has more words.
constexpr size_t kMaxWords = 9;
constexpr std::string_view kWaits = "->";

struct Words {
  std::array<std::string_view, kMaxWords> word;
  size_t count = 0;
};

Words Split(std::string_view line) {
  Words words;
  while (words.count < kMaxWords) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == line.npos) break;
    line.remove_prefix(begin);
    words.word[words.count] = line.substr(0, line.find(' '));
    line.remove_prefix(words.word[words.count].size());
    words.count++;
  }
  return words;
}

template <typename Number>
std::optional<Number> Parse(std::string_view text, int base) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<FileLockKind> KindNamed(std::string_view name) {
  if (name == "FLOCK") return FileLockKind::kFlock;
  if (name == "POSIX") return FileLockKind::kRecord;
  if (name == "OFDLCK") return FileLockKind::kOpenFile;
  return std::nullopt;
}

// "fe:00:17": hex, hex, decimal.
std::optional<LockedFile> ParseFile(std::string_view text) {
  const size_t first = text.find(':'), second = text.find(':', first + 1);
  if (first == text.npos || second == text.npos) return std::nullopt;
  const auto major = Parse<uint32_t>(text.substr(0, first), 16);
  const auto minor = Parse<uint32_t>(text.substr(first + 1, second - first - 1), 16);
  const auto inode = Parse<uint64_t>(text.substr(second + 1), 10);
  if (!major || !minor || !inode) return std::nullopt;
  return LockedFile{*major, *minor, *inode};
}

// `words` from the kind on: "FLOCK", "ADVISORY", "WRITE", "42", "fe:00:17".
std::optional<FileLockLine> ParseLine(const Words& words, size_t at) {
  constexpr size_t kKind = 0, kMode = 2, kPid = 3, kFile = 4;
  if (words.count <= at + kFile) return std::nullopt;
  const auto kind = KindNamed(words.word[at + kKind]);
  const auto pid = Parse<int32_t>(words.word[at + kPid], 10);
  const auto file = ParseFile(words.word[at + kFile]);
  const std::string_view mode = words.word[at + kMode];
  if (!kind || !pid || !file || (mode != "READ" && mode != "WRITE")) return std::nullopt;
  return FileLockLine{*kind, mode == "READ", *pid, *file};
}

}  // namespace

std::vector<HeldFileLock> ParseFileLocks(std::string_view text) {
  std::vector<HeldFileLock> locks;
  std::string_view id;  // of the last of `locks`; empty: its line made no sense
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const Words words = Split(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (words.count < 2) {
      id = {};
      continue;
    }
    const bool waits = words.word[1] == kWaits;
    const auto line = ParseLine(words, waits ? 2 : 1);
    if (!waits) {
      id = line ? words.word[0] : std::string_view();
      if (line) locks.push_back({.holder = *line, .waiters = {}});
    } else if (line && !id.empty() && words.word[0] == id && line->file == locks.back().holder.file) {
      locks.back().waiters.push_back(*line);
    }
  }
  return locks;
}

}  // namespace stackd

#include "daemon/process/threads_in_words.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "daemon/base/text.h"
#include "daemon/process/open_below.h"

namespace stackd {
namespace {

// Each thread costs reading three files of procfs, 20 us.
constexpr size_t kMaxThreads = 512;
constexpr size_t kMaxKinds = 8;

const char* StateInWords(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "uninterruptible";
    case 'T':
    case 't':
      return "stopped";
    default:
      return "ended";
  }
}

// Readable where the process is of the daemon's own user.
std::string WaitChannel(const Fd& tasks, int32_t tid) {
  char path[32], name[64];
  snprintf(path, sizeof(path), "%d/wchan", tid);
  const Fd file = OpenBelow(tasks, path, O_RDONLY);
  const ssize_t length = file.valid() ? read(file.get(), name, sizeof(name)) : 0;
  if (length <= 0 || name[0] == '0') return {};
  return " in " + ToValidUtf8(std::string(name, static_cast<size_t>(length)));
}

}  // namespace

std::string ThreadsInWords(const ProcessFiles& files) {
  const std::vector<int32_t> tids = files.Tids();
  const Fd tasks = files.OpenTasks();
  std::map<std::string, int> counts;
  for (size_t i = 0; i < std::min(tids.size(), kMaxThreads); ++i) {
    const auto look = files.LookAt(tids[i]);
    if (!look) continue;
    ++counts[files.ThreadName(tids[i]) + " (" + StateInWords(look->state) + WaitChannel(tasks, tids[i]) + ")"];
  }
  std::vector<std::pair<std::string, int>> kinds(counts.begin(), counts.end());
  std::ranges::stable_sort(kinds, std::greater(), &std::pair<std::string, int>::second);
  std::string words;
  size_t told = 0;
  for (size_t i = 0; i < std::min(kinds.size(), kMaxKinds); ++i) {
    words += (i == 0 ? "" : ", ") + std::to_string(kinds[i].second) + " " + kinds[i].first;
    told += static_cast<size_t>(kinds[i].second);
  }
  if (told > 0 && told < tids.size()) words += " and " + std::to_string(tids.size() - told) + " others";
  return words;
}

}  // namespace stackd

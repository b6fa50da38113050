#include "daemon/metrics/own_process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"

namespace stackd {
namespace {

// Fields of /proc/self/stat from the third on, as numbers: those before may hold anything.
std::vector<int64_t> StatFields() {
  const Fd file(open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  char bytes[1024];
  const ssize_t got = read(file.get(), bytes, sizeof(bytes) - 1);
  std::string_view text(bytes, got > 0 ? static_cast<size_t>(got) : 0);
  text.remove_prefix(std::min(text.size(), text.rfind(')') + 1));
  std::vector<int64_t> fields;
  for (std::string rest(text); !rest.empty();) {
    const size_t begin = rest.find_first_not_of(" \n");
    if (begin == std::string::npos) break;
    rest.erase(0, begin);
    const size_t end = rest.find_first_of(" \n");
    fields.push_back(strtoll(rest.substr(0, end).c_str(), nullptr, 10));
    rest.erase(0, end);
  }
  return fields;
}

int64_t CountFds() {
  std::error_code error;
  int64_t count = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    ++count;
  }
  // The folder's own is among them.
  return count > 0 ? count - 1 : 0;
}

constexpr size_t kFirstField = 3;

}  // namespace

void WriteOwnProcess(Exposition* out) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  out->Family("counter", "process_cpu_seconds_total", "CPU time that stackd has used, without its symbol worker.");
  out->Sample({}, seconds(usage.ru_utime) + seconds(usage.ru_stime));

  const std::vector<int64_t> fields = StatFields();
  const auto field = [&fields](size_t number) {
    return number - kFirstField < fields.size() ? fields[number - kFirstField] : 0;
  };
  out->Gauge("process_resident_memory_bytes", "Memory of stackd that is in RAM.", field(24) * sysconf(_SC_PAGESIZE));
  out->Gauge("process_virtual_memory_bytes", "Address space of stackd.", field(23));
  out->Gauge("process_threads", "Threads of stackd.", field(20));
  out->Gauge("process_open_fds", "Files, sockets and memory that stackd has open: about a dozen for each process.",
             CountFds());
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  out->Gauge("process_max_fds", "How many it may have open.", static_cast<int64_t>(limit.rlim_cur));

  const double since_boot_s = static_cast<double>(field(22)) / static_cast<double>(sysconf(_SC_CLK_TCK));
  const double boot_s = static_cast<double>(WallNs() - ClockNs(CLOCK_BOOTTIME)) / kNsPerSecond;
  out->Family("gauge", "process_start_time_seconds", "When stackd was started, in seconds since 1970.");
  out->Sample({}, boot_s + since_boot_s);
}

}  // namespace stackd

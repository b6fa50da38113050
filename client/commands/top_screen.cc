#include "client/commands/top_screen.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "client/output.h"
#include "client/place.h"
#include "daemon/base/clock.h"

namespace stackd {
namespace {

int64_t Ns(const google::protobuf::Duration& duration) { return duration.seconds() * kNsPerSecond + duration.nanos(); }

// Processes that were looked at sort before those that were not.
int Urgency(const v1::Process& process) { return process.health(); }

std::string Whole(double number) { return std::to_string(std::lround(number)); }

std::string HangText(const v1::Process& process) {
  if (process.hangs().empty()) return "";
  const v1::Hang& first = process.hangs(0);
  const std::string more = process.hangs_size() > 1 ? " (and " + std::to_string(process.hangs_size() - 1) + " more)" : "";
  return "for " + SpanText(Ns(first.duration())) + ": " + first.explanation() + more;
}

}  // namespace

std::vector<TopRow> TopRows(const Look& before, const Look& now) {
  std::map<std::string, int64_t> used_before;
  for (const v1::Process& process : before.processes) {
    if (process.has_cpu_time()) used_before[process.name()] = Ns(process.cpu_time());
  }
  const int64_t between_ns = now.at_ns - before.at_ns;
  std::vector<TopRow> rows;
  for (const v1::Process& process : now.processes) {
    TopRow& row = rows.emplace_back(TopRow{.process = process, .cpu_percent = {}});
    const auto used = used_before.find(process.name());
    if (used == used_before.end() || !process.has_cpu_time() || between_ns <= 0) continue;
    const int64_t used_ns = std::max<int64_t>(Ns(process.cpu_time()) - used->second, 0);
    row.cpu_percent = 100.0 * static_cast<double>(used_ns) / static_cast<double>(between_ns);
  }
  std::ranges::stable_sort(rows, [](const TopRow& a, const TopRow& b) {
    return std::pair(Urgency(a.process), a.cpu_percent.value_or(0)) >
           std::pair(Urgency(b.process), b.cpu_percent.value_or(0));
  });
  return rows;
}

std::string TopSummary(const std::vector<TopRow>& rows) {
  std::map<int, int> count_by_urgency;
  double percent = 0;
  for (const TopRow& row : rows) {
    ++count_by_urgency[Urgency(row.process)];
    percent += row.cpu_percent.value_or(0);
  }
  std::string text = std::to_string(rows.size()) + (rows.size() == 1 ? " process" : " processes");
  std::string separator = ": ";
  for (auto entry = count_by_urgency.rbegin(); entry != count_by_urgency.rend(); ++entry) {
    v1::Process example;
    example.set_health(static_cast<v1::Process::Health>(entry->first));
    text += std::exchange(separator, ", ") + std::to_string(entry->second) + " " +
            (entry->first == v1::Process::HEALTH_UNSPECIFIED ? "not looked at" : HealthText(example));
  }
  return text + "; " + Whole(percent) + " % of a processor";
}

std::vector<std::string> TopTable(const std::vector<TopRow>& rows) {
  std::vector<std::vector<std::string>> cells{
      {"HEALTH", "PID", "NAME", "WHERE", "THREADS", "MOVING", "CPU%", "CPU TIME", "HANG"}};
  for (const auto& [process, cpu_percent] : rows) {
    const std::string moving = process.has_moving_thread_count() ? std::to_string(process.moving_thread_count()) : "-";
    cells.push_back({HealthText(process), std::to_string(process.pid()), process.display_name(), WhereText(process),
                     std::to_string(process.thread_count()), moving, cpu_percent ? Whole(*cpu_percent) : "-",
                     process.has_cpu_time() ? SpanText(Ns(process.cpu_time())) : "-", HangText(process)});
  }
  std::istringstream table(Table(cells));
  std::vector<std::string> lines;
  for (std::string line; std::getline(table, line);) lines.push_back(line);
  return lines;
}

size_t Moved(size_t at, Key key, size_t count, size_t page) {
  if (key == Key::kUp) at -= std::min<size_t>(at, 1);
  if (key == Key::kDown) at += 1;
  if (key == Key::kPageUp) at -= std::min(at, page);
  if (key == Key::kPageDown) at += page;
  if (key == Key::kHome) at = 0;
  if (key == Key::kEnd) at = count;
  return count == 0 ? 0 : std::min(at, count - 1);
}

size_t FirstShown(size_t first, size_t cursor, size_t count, size_t height) {
  if (cursor >= first + height) first = cursor + 1 - std::max<size_t>(height, 1);
  first = std::min(first, cursor);
  // A list that became shorter leaves no empty lines.
  return std::min(first, count > height ? count - height : 0);
}

}  // namespace stackd

#include "client/output.h"

#include <google/protobuf/util/json_util.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "daemon/base/clock.h"
#include "daemon/export/printable.h"

namespace stackd {

std::string Table(std::vector<std::vector<std::string>> rows) {
  for (auto& row : rows) {
    for (std::string& cell : row) cell = Printable(cell);
  }
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      // No blanks at the end of a line.
      if (i + 1 < row.size()) text.append(widths[i] - row[i].size() + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return "-";
  time_t seconds = time.seconds();
  tm utc;
  char text[32];
  if (gmtime_r(&seconds, &utc) == nullptr || strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) return "-";
  return text;
}

std::string SpanText(int64_t span_ns) {
  constexpr int64_t kMinuteS = 60, kHourS = 60 * kMinuteS, kDayS = 24 * kHourS;
  const int64_t s = span_ns / kNsPerSecond;
  char text[32];
  if (s < kMinuteS) {
    snprintf(text, sizeof(text), "%.1fs", static_cast<double>(span_ns) / kNsPerSecond);
  } else if (s < kHourS) {
    snprintf(text, sizeof(text), "%ldm%02lds", s / kMinuteS, s % kMinuteS);
  } else if (s < kDayS) {
    snprintf(text, sizeof(text), "%ldh%02ldm", s / kHourS, s % kHourS / kMinuteS);
  } else {
    snprintf(text, sizeof(text), "%ldd%02ldh", s / kDayS, s % kDayS / kHourS);
  }
  return text;
}

std::string HealthText(const v1::Process& process) {
  switch (process.health()) {
    case v1::Process::WELL:
      return "well";
    case v1::Process::SUSPICIOUS:
      return "suspicious";
    case v1::Process::HUNG:
      return "hung";
    default:
      return "-";
  }
}

std::string ShareText(const v1::Process& process) {
  switch (process.share()) {
    case v1::Process::STACKS:
      return "stacks";
    case v1::Process::NAMES:
      return "names";
    case v1::Process::MEMORY:
      return "memory";
    default:
      return "-";
  }
}

std::string Json(const google::protobuf::Message& message, bool indented) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = indented;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return "{}\n";
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

std::string TriggerText(const v1::Dump& dump) {
  return v1::Dump::Trigger_IsValid(dump.trigger()) ? v1::Dump::Trigger_Name(dump.trigger()) : "?";
}

std::string StateText(const v1::Dump& dump) {
  return v1::Dump::State_IsValid(dump.state()) ? v1::Dump::State_Name(dump.state()) : "?";
}

std::string CauseText(const v1::Dump& dump) {
  if (dump.has_hang()) return dump.hang().explanation().empty() ? "not explained" : dump.hang().explanation();
  if (!dump.has_crash()) return {};
  if (!dump.crash().explanation().empty()) return dump.crash().explanation();
  return dump.crash().signal_name().empty() ? "not explained yet" : dump.crash().signal_name();
}

std::string ThreadsText(const v1::ThreadCounts& counts) {
  if (counts.captured() == counts.listed()) return std::to_string(counts.listed());
  return std::to_string(counts.captured()) + " of " + std::to_string(counts.listed());
}

bool Print(std::string_view text) {
  if (fwrite(text.data(), 1, text.size(), stdout) == text.size()) return true;
  Complain(std::string("cannot write the output: ") + strerror(errno));
  return false;
}

bool FlushOutput() {
  if (fflush(stdout) == 0) return true;
  Complain(std::string("cannot write the output: ") + strerror(errno));
  return false;
}

void Complain(const std::string& sentence) { fprintf(stderr, "stackctl: %s\n", Printable(sentence).c_str()); }

}  // namespace stackd

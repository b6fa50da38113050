#include "daemon/log/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>

#include "daemon/base/printable.h"

namespace stackd {
namespace {

LogFormat g_format = LogFormat::kText;
LogPlace g_place;

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::string JsonString(std::string_view text) {
  std::string result = "\"";
  for (char c : PrintableText(text)) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

}  // namespace

std::string FormatLogLine(LogFormat format, std::string_view message, std::initializer_list<LogField> fields,
                          const LogPlace& place) {
  if (format == LogFormat::kJson) {
    std::string line = "\"msg\":" + JsonString(message);
    for (const LogField& field : fields) {
      if (field.omitted) continue;
      line += ',' + JsonString(field.key) + ':' + (field.quoted ? JsonString(field.value) : field.value);
    }
    for (const auto& [key, value] : place) line += ',' + JsonString(key) + ':' + JsonString(value);
    return line;
  }
  std::string line = PrintableText(message);
  for (const LogField& field : fields) {
    if (!field.omitted) line += "  " + std::string(field.key) + "=" + PrintableText(field.value);
  }
  return line;
}

void StartLog(LogFormat format, LogLevel level, const LogPlace& place) {
  if (format == LogFormat::kAuto) format = isatty(STDERR_FILENO) ? LogFormat::kText : LogFormat::kJson;
  g_format = format;
  g_place = place;
  const char* pattern = format == LogFormat::kJson ? R"({"ts":"%Y-%m-%dT%H:%M:%S.%FZ","level":"%l",%v})"
                                                   : "%Y-%m-%d %H:%M:%S.%eZ %^%-7l%$ %v";
  auto logger = std::make_shared<spdlog::logger>("stackd", std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>());
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc));
  logger->set_level(SpdlogLevel(level));
  spdlog::set_default_logger(std::move(logger));
}

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  spdlog::level::level_enum spdlog_level = SpdlogLevel(level);
  if (!spdlog::should_log(spdlog_level)) return;
  spdlog::log(spdlog_level, spdlog::string_view_t(FormatLogLine(g_format, message, fields, g_place)));
}

}  // namespace stackd

// The daemon's log: one JSON object per line on stderr, or text where stderr is a terminal.
//
//     {"ts":"2026-11-21T03:14:15.926535897Z","level":"info","msg":"dump stored","process":"processes/7-1","dump":"…"}
//
// Never a stack, and never anything else out of a watched process but its names.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

namespace stackd {

enum class LogFormat { kAuto, kJson, kText };
enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogField {
  LogField(std::string_view field_key, std::string_view text) : key(field_key), value(text), quoted(true) {}
  LogField(std::string_view field_key, std::integral auto number)
      : key(field_key), value(std::to_string(number)), quoted(false) {}

  // Left out of the line if `text` is empty.
  static LogField IfKnown(std::string_view field_key, std::string_view text) {
    LogField field(field_key, text);
    field.omitted = text.empty();
    return field;
  }

  std::string_view key;
  std::string value;
  bool quoted;
  bool omitted = false;
};

using LogPlace = std::map<std::string, std::string, std::less<>>;

// Called once, before any thread is started; what is logged earlier is text. `place` is in each line of JSON: where the
// daemon runs.
void StartLog(LogFormat format, LogLevel level, const LogPlace& place = {});

// Thread-safe.
void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

// What stands between the level and the end of a line: JSON members, or text.
std::string FormatLogLine(LogFormat format, std::string_view message, std::initializer_list<LogField> fields,
                          const LogPlace& place = {});

}  // namespace stackd

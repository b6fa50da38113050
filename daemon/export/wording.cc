#include "daemon/export/wording.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace stackd {
namespace {

// A list that is longer says how much it leaves out.
constexpr size_t kMaxListBytes = 100;

constexpr double kNsPerUs = 1e3, kNsPerMs = 1e6, kNsPerSecond = 1e9;

std::string Decimal(double value, const char* unit) {
  char text[48];
  // Two significant digits are what a person compares.
  snprintf(text, sizeof(text), value < 10 ? "%.1f %s" : "%.0f %s", value, unit);
  return text;
}

}  // namespace

std::string Grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first_digit = number < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first_digit + 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string Count(int64_t number, std::string_view noun) {
  std::string text = Grouped(number) + " ";
  text += noun;
  if (number != 1) text += "s";
  return text;
}

std::string InWords(const google::protobuf::Duration& duration) {
  const double ns = static_cast<double>(duration.seconds()) * kNsPerSecond + duration.nanos();
  if (ns < kNsPerUs) return std::to_string(duration.nanos()) + " ns";
  if (ns < kNsPerMs) return Decimal(ns / kNsPerUs, "us");
  if (ns < kNsPerSecond) return Decimal(ns / kNsPerMs, "ms");
  return Decimal(ns / kNsPerSecond, "s");
}

std::string InWords(const google::protobuf::Timestamp& time) {
  const time_t seconds = time.seconds();
  tm parts;
  char text[64];
  if (gmtime_r(&seconds, &parts) == nullptr || strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) {
    return "at an unknown time";
  }
  return text;
}

std::string Ranges(std::vector<uint64_t> numbers) {
  std::ranges::sort(numbers);
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] - numbers[end - 1] == 1) ++end;
    std::string range = std::to_string(numbers[i]);
    if (end - i > 1) range += (end - i > 2 ? "-" : ", ") + std::to_string(numbers[end - 1]);
    if (text.size() + range.size() > kMaxListBytes) {
      return text + " and " + Grouped(static_cast<int64_t>(numbers.size() - i)) + " more";
    }
    text += (text.empty() ? "" : ", ") + range;
    i = end;
  }
  return text;
}

std::string LanguageInWords(v1::Language language) {
  switch (language) {
    case v1::C_CPP:
      return "C/C++";
    case v1::RUST:
      return "Rust";
    case v1::GO:
      return "Go";
    case v1::PYTHON:
      return "Python";
    case v1::JAVA:
      return "Java";
    case v1::JAVASCRIPT:
      return "JavaScript";
    case v1::PHP:
      return "PHP";
    case v1::RUBY:
      return "Ruby";
    default:
      return "native code";
  }
}

std::string_view TaskNoun(v1::Language language) {
  switch (language) {
    case v1::GO:
      return "goroutine";
    case v1::PYTHON:
      return "asyncio task";
    case v1::RUST:
      return "tokio task";
    case v1::JAVA:
      return "virtual thread";
    default:
      return "task";
  }
}

std::string CountedList(const std::vector<Counted>& items) {
  if (items.size() == 1) return items[0].text;
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i].text + (items[i].count > 0 ? " (" + Grouped(items[i].count) + ")" : "");
    if (i > 0 && text.size() + item.size() > kMaxListBytes) {
      return text + " and " + Grouped(static_cast<int64_t>(items.size() - i)) + " more";
    }
    text += (i == 0 ? "" : ", ") + item;
  }
  return text;
}

}  // namespace stackd

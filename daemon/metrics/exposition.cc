#include "daemon/metrics/exposition.h"

#include <charconv>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

void AppendEscaped(std::string_view value, std::string* text) {
  for (const char c : ToValidUtf8(value)) {
    if (c == '\n') {
      *text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') *text += '\\';
    *text += c;
  }
}

std::string Number(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

double Seconds(int64_t duration_ns) { return static_cast<double>(duration_ns) / kNsPerSecond; }

}  // namespace

void Exposition::Family(std::string_view type, std::string_view name, std::string_view help) {
  name_ = name;
  text_.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ").append(name).append(" ");
  text_.append(type).append("\n");
}

void Exposition::Line(std::string_view suffix, std::span<const Label> labels, std::string_view le, std::string_view value) {
  text_.append(name_).append(suffix);
  char separator = '{';
  const auto add = [&](std::string_view name, std::string_view label_value) {
    text_ += separator;
    text_.append(name).append("=\"");
    AppendEscaped(label_value, &text_);
    text_ += '"';
    separator = ',';
  };
  for (const auto& [name, label_value] : labels) add(name, label_value);
  if (!le.empty()) add("le", le);
  if (separator == ',') text_ += '}';
  text_.append(" ").append(value).append("\n");
}

void Exposition::Sample(std::span<const Label> labels, int64_t value) { Line("", labels, "", std::to_string(value)); }
void Exposition::Sample(Labels labels, int64_t value) { Line("", labels, "", std::to_string(value)); }
void Exposition::Sample(Labels labels, double value) { Line("", labels, "", Number(value)); }

void Exposition::Sample(Labels labels, const DurationHistogram& histogram) {
  constexpr auto& kBounds = DurationHistogram::kBoundsNs;
  // Buckets are cumulative. The sum is read first: it may be late, never ahead of what it is the sum of.
  const double sum = Seconds(histogram.sum_ns());
  int64_t count = 0;
  for (size_t i = 0; i <= kBounds.size(); ++i) {
    count += histogram.count(i);
    Line("_bucket", labels, i < kBounds.size() ? Number(Seconds(kBounds[i])) : "+Inf", std::to_string(count));
  }
  Line("_sum", labels, "", Number(sum));
  Line("_count", labels, "", std::to_string(count));
}

void Exposition::Counter(std::string_view name, std::string_view help, int64_t value) {
  Family("counter", name, help);
  Sample({}, value);
}

void Exposition::Gauge(std::string_view name, std::string_view help, int64_t value) {
  Family("gauge", name, help);
  Sample({}, value);
}

}  // namespace stackd

// Prometheus' text format, version 0.0.4: families of samples, in the order in which they are written.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/histogram.h"

namespace stackd {

class Exposition {
 public:
  using Label = std::pair<std::string_view, std::string_view>;
  using Labels = std::initializer_list<Label>;

  // Begins a family; `type` is "counter", "gauge" or "histogram". All its samples follow, before the next family.
  void Family(std::string_view type, std::string_view name, std::string_view help);
  void Sample(Labels labels, int64_t value);
  void Sample(Labels labels, double value);
  void Sample(std::span<const Label> labels, int64_t value);
  // Writes the samples of a histogram, in seconds.
  void Sample(Labels labels, const DurationHistogram& histogram);

  // A family of one sample without labels.
  void Counter(std::string_view name, std::string_view help, int64_t value);
  void Gauge(std::string_view name, std::string_view help, int64_t value);

  std::string Take() { return std::move(text_); }

 private:
  void Line(std::string_view suffix, std::span<const Label> labels, std::string_view le, std::string_view value);

  std::string text_;
  std::string_view name_;
};

}  // namespace stackd

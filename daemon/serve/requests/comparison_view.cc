#include "daemon/serve/requests/comparison_view.h"

#include <algorithm>
#include <string>
#include <utility>

namespace stackd {
namespace {

// Tag and length that stand before a field's content.
constexpr size_t kFieldOverheadBytes = 6;
// For the names, the sentence and the line that says what is missing.
constexpr size_t kReserveBytes = 16 << 10;

size_t ContentBytes(const std::string& line) { return line.size(); }
size_t ContentBytes(const google::protobuf::Message& message) { return message.ByteSizeLong(); }

// Drops from the end what does not fit, and takes the rest from `budget_bytes`. Returns how many were dropped.
template <typename Repeated>
int Fit(Repeated* items, size_t* budget_bytes) {
  int fitting = 0;
  for (; fitting < items->size(); ++fitting) {
    const size_t bytes = ContentBytes(items->Get(fitting)) + kFieldOverheadBytes;
    if (bytes > *budget_bytes) break;
    *budget_bytes -= bytes;
  }
  const int dropped = items->size() - fitting;
  items->DeleteSubrange(fitting, dropped);
  return dropped;
}

}  // namespace

v1::DumpComparison FittingAnswer(v1::DumpComparison comparison, size_t budget_bytes) {
  budget_bytes -= std::min(budget_bytes, kReserveBytes);
  const int findings = Fit(comparison.mutable_findings(), &budget_bytes);
  const int lines = Fit(comparison.mutable_lines(), &budget_bytes);
  if (findings > 0 || lines > 0) {
    comparison.add_lines(std::to_string(findings) + " findings and " + std::to_string(lines) +
                         " lines are left out to keep this answer below 4 MiB");
  }
  comparison.set_omitted_thread_count(Fit(comparison.mutable_threads(), &budget_bytes));
  return comparison;
}

}  // namespace stackd

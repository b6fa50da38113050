// "Did you mean …": which of some names is close to one that a person typed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stackd {

// Insertions, deletions and replacements that lead from `a` to `b`. Only the first 64 bytes count: names come from outside.
inline size_t EditDistance(std::string_view a, std::string_view b) {
  a = a.substr(0, 64);
  b = b.substr(0, 64);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

// At most three of `names`, nearest first: those that hold `typed` or differ from it in a third of its letters or less.
inline std::vector<std::string> NearNames(std::string_view typed, const std::vector<std::string>& names) {
  const size_t limit = std::max<size_t>(1, typed.size() / 3);
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& name : names) {
    size_t distance = EditDistance(typed, name);
    bool holds = !typed.empty() && name.find(typed) != std::string::npos;
    if (holds || distance <= limit) near.emplace_back(holds ? 0 : distance, name);
  }
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  std::vector<std::string> result;
  for (size_t i = 0; i < near.size() && i < 3; ++i) result.push_back(near[i].second);
  return result;
}

}  // namespace stackd

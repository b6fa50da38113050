// One thing that `stackctl doctor` found, and what its checks share.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace stackd {

struct Finding {
  enum Grade { kGood, kRemark, kBad };
  Grade grade;
  std::string text;
  std::string way_out;  // empty if there is nothing to do
};

inline Finding Good(std::string text, std::string way_out = {}) {
  return {Finding::kGood, std::move(text), std::move(way_out)};
}
inline Finding Remark(std::string text, std::string way_out = {}) {
  return {Finding::kRemark, std::move(text), std::move(way_out)};
}
inline Finding Bad(std::string text, std::string way_out) { return {Finding::kBad, std::move(text), std::move(way_out)}; }

// A dump of more threads than may be queued takes longer.
inline constexpr uint64_t kFewPendingSignals = 1024;

// Returns nullopt where it is empty too, as maps is to a user who may open it and not read it.
inline std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return std::nullopt;
  return text.str();
}

// The permissions in octal, as chmod takes them.
inline std::string Mode(mode_t mode) {
  char text[8];
  snprintf(text, sizeof(text), "%04o", mode & 07777);
  return text;
}

}  // namespace stackd

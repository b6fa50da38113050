#include "daemon/config/yaml_reader.h"

#include <cstdio>
#include <fstream>
#include <set>

#include "daemon/base/clock.h"
#include "daemon/base/near_name.h"
#include "daemon/base/printable.h"
#include "daemon/config/units.h"

namespace stackd {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr int64_t kMaxCount = 1'000'000;

}  // namespace

std::string InQuotes(std::string_view text) { return "\"" + PrintableText(text) + "\""; }

std::string JoinNames(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void YamlReader::Fault(const YAML::Mark& mark, const std::string& sentence) {
  faults_.push_back(file_ + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1) + ": " + sentence);
}

void YamlReader::ReadMap(const YAML::Node& node, const std::string& what, const Keys& keys) {
  if (!node.IsMap()) return Fault(node.Mark(), what + " must be a list of keys and values");
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const auto reader = keys.find(key);
    if (reader == keys.end()) {
      UnknownName(entry.first.Mark(), "key", key, "in " + what, Names(keys));
    } else if (!seen.insert(key).second) {
      Fault(entry.first.Mark(), "the key " + InQuotes(key) + " stands twice in " + what);
    } else {
      reader->second(entry.second);
    }
  }
}

void YamlReader::UnknownName(const YAML::Mark& mark, const std::string& kind, const std::string& typed,
                             const std::string& where, const std::vector<std::string>& names) {
  const std::vector<std::string> near = NearNames(typed, names);
  const std::string hint = near.empty() ? "possible: " + JoinNames(names) : "did you mean " + InQuotes(near[0]) + "?";
  Fault(mark, "unknown " + kind + " " + InQuotes(typed) + " " + where + "; " + hint);
}

std::string YamlReader::Text(const YAML::Node& node, const std::string& what) {
  if (node.IsScalar() && !node.Scalar().empty()) return node.Scalar();
  Fault(node.Mark(), what + " must be a text that is not empty");
  return {};
}

int64_t YamlReader::DurationNs(const YAML::Node& node, const std::string& what) {
  const Result<int64_t> ms = node.IsScalar() ? ParseDurationMs(node.Scalar()) : 0;
  if (!ms) {
    Fault(node.Mark(), what + ": " + InQuotes(node.Scalar()) + " is no duration; write it like 5s, 10min or 2h");
  } else if (*ms <= 0 || *ms > INT64_MAX / kNsPerMs) {
    Fault(node.Mark(), what + " must be a duration above 0, like 5s, 10min or 2h");
  } else {
    return *ms * kNsPerMs;
  }
  return kNsPerSecond;
}

int64_t YamlReader::Count(const YAML::Node& node, const std::string& what) {
  int64_t count = 0;
  if (node.IsScalar() && YAML::convert<int64_t>::decode(node, count) && count >= 1 && count <= kMaxCount) return count;
  Fault(node.Mark(), what + " must be a number from 1 to " + std::to_string(kMaxCount));
  return 1;
}

Result<std::string> ReadConfigFile(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (stream) stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!stream.is_open() || stream.bad()) return Error(Code::kUnavailable, file + ": cannot be read");
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kMaxFileBytes) return Error(Code::kInvalidArgument, file + ": has more than 1 MiB");
  return text;
}

std::optional<int> CheckFileIfAsked(
    int argc, const char* const* argv, const FileCheck& check,
    const std::function<std::expected<std::string, std::vector<std::string>>(const std::string& file)>& read) {
  if (argc < 2 || argv[1] != check.command) return std::nullopt;
  if (argc == 3 && (std::string_view(argv[2]) == "--help" || std::string_view(argv[2]) == "-h")) {
    printf("stackd %s FILE\n\nSays what is wrong in a file for %s, and where. Exit code: 0, or 1 with a fault.\n",
           check.command.c_str(), check.option.c_str());
    return 0;
  }
  if (argc != 3) {
    fprintf(stderr, "stackd: %s takes one file\n", check.command.c_str());
    return 2;
  }
  const auto content = read(argv[2]);
  if (content) {
    printf("%s: %s\n", argv[2], content->c_str());
    return 0;
  }
  for (const std::string& fault : content.error()) fprintf(stderr, "%s\n", fault.c_str());
  return 1;
}

}  // namespace stackd

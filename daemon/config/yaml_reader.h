// Reads a YAML file of a person, and writes down what is wrong in it and where.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace stackd {

std::string InQuotes(std::string_view text);
std::string JoinNames(const std::vector<std::string>& names);

// Faults are sentences with their place: "rules.yaml:7:12: ...".
class YamlReader {
 public:
  explicit YamlReader(std::string file) : file_(std::move(file)) {}

  void Fault(const YAML::Mark& mark, const std::string& sentence);

  // Calls the reader of each key; a key that has none, or stands there twice, is a fault.
  using Keys = std::map<std::string, std::function<void(const YAML::Node&)>>;
  void ReadMap(const YAML::Node& node, const std::string& what, const Keys& keys);

  void UnknownName(const YAML::Mark& mark, const std::string& kind, const std::string& typed, const std::string& where,
                   const std::vector<std::string>& names);

  // What follows is a fault, and has some value that does no harm, where the node is not such a thing.
  std::string Text(const YAML::Node& node, const std::string& what);
  int64_t DurationNs(const YAML::Node& node, const std::string& what);
  int64_t Count(const YAML::Node& node, const std::string& what);

  std::vector<std::string> TakeFaults() { return std::move(faults_); }

  template <typename Map>
  static std::vector<std::string> Names(const Map& map) {
    std::vector<std::string> names;
    for (const auto& [name, value] : map) names.push_back(name);
    return names;
  }

 private:
  const std::string file_;
  std::vector<std::string> faults_;
};

// Fails with one sentence.
Result<std::string> ReadConfigFile(const std::string& file);

struct FileCheck {
  std::string command;  // "check-rules"
  std::string option;   // "--rules"
};

// `stackd COMMAND FILE`: nullopt if that is not what was asked for, else the exit code. `read` gives what is in the file,
// "3 rules", or its faults.
std::optional<int> CheckFileIfAsked(
    int argc, const char* const* argv, const FileCheck& check,
    const std::function<std::expected<std::string, std::vector<std::string>>(const std::string& file)>& read);

}  // namespace stackd

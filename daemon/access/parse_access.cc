#include <charconv>
#include <map>

#include "daemon/access/access_rules.h"
#include "daemon/config/yaml_reader.h"

namespace stackd {
namespace {

const std::map<std::string, Role> kRoles = {
    {"none", Role::kNone}, {"read", Role::kRead}, {"dump", Role::kDump}, {"admin", Role::kAdmin}};

Role ReadRole(YamlReader* reader, const YAML::Node& node, const std::string& what) {
  const std::string name = reader->Text(node, what);
  const auto known = kRoles.find(name);
  if (known != kRoles.end()) return known->second;
  if (!name.empty()) reader->UnknownName(node.Mark(), "role", name, "in " + what, YamlReader::Names(kRoles));
  return Role::kNone;
}

uid_t ReadUid(YamlReader* reader, const YAML::Node& node) {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  uid_t uid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), uid);
  // The largest is no user: it stands for "unchanged".
  if (error != std::errc() || end != text.data() + text.size() || uid == UINT32_MAX) {
    reader->Fault(node.Mark(), "uid must be the number of a user, like 1000");
  }
  return uid;
}

std::string ReadPattern(YamlReader* reader, const YAML::Node& node, const std::string& what) {
  std::string pattern = reader->Text(node, what);
  const size_t star = pattern.find('*');
  if (star != std::string::npos && star + 1 != pattern.size()) {
    reader->Fault(node.Mark(), what + ": a \"*\" stands at the end only, and for anything that begins so");
  }
  if (pattern == "*") reader->Fault(node.Mark(), what + ": \"*\" alone would be everybody: write how the names begin");
  return pattern;
}

AccessRule ReadRule(YamlReader* reader, const YAML::Node& node) {
  AccessRule rule;
  int names = 0;
  bool has_role = false;
  const auto pattern_of = [&](AccessRule::Kind kind, const std::string& what) {
    return [=, &rule, &names](const YAML::Node& value) {
      ++names;
      rule.kind = kind;
      rule.pattern = ReadPattern(reader, value, what);
    };
  };
  reader->ReadMap(node, "an entry of access",
                  {{"uid",
                    [&](const YAML::Node& value) {
                      ++names;
                      rule.kind = AccessRule::Kind::kUid;
                      rule.uid = ReadUid(reader, value);
                    }},
                   {"uri", pattern_of(AccessRule::Kind::kUri, "uri")},
                   {"dns", pattern_of(AccessRule::Kind::kDns, "dns")},
                   {"role", [&](const YAML::Node& value) {
                      has_role = true;
                      rule.role = ReadRole(reader, value, "role");
                    }}});
  if (!node.IsMap()) return rule;
  if (names != 1) reader->Fault(node.Mark(), "the entry needs one of uid, uri and dns: who it is about");
  if (!has_role) reader->Fault(node.Mark(), "the entry needs a role: none, read, dump or admin");
  return rule;
}

void ReadRules(YamlReader* reader, const YAML::Node& list, AccessRules* access) {
  if (!list.IsSequence()) return reader->Fault(list.Mark(), "access must be a list, like \"- {uid: 1000, role: read}\"");
  for (const YAML::Node& node : list) access->rules.push_back(ReadRule(reader, node));
}

void ReadLimits(YamlReader* reader, const YAML::Node& node, CallRates* rates) {
  reader->ReadMap(node, "limits",
                  {{"calls_per_second",
                    [&](const YAML::Node& value) { rates->calls_per_second = reader->Count(value, "calls_per_second"); }},
                   {"captures_per_minute", [&](const YAML::Node& value) {
                      rates->captures_per_minute = reader->Count(value, "captures_per_minute");
                    }}});
}

}  // namespace

std::expected<AccessRules, std::vector<std::string>> ParseAccess(std::string_view text, const std::string& file) {
  YamlReader reader(file);
  AccessRules access;
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    // A file that was cut short must not be taken for one that allows what the built-in roles do.
    if (root.IsNull()) return std::unexpected(std::vector<std::string>{file + ":1:1: the file is empty"});
    reader.ReadMap(root, "the file",
                   {{"access", [&](const YAML::Node& node) { ReadRules(&reader, node, &access); }},
                    {"loopback", [&](const YAML::Node& node) { access.loopback = ReadRole(&reader, node, "loopback"); }},
                    {"limits", [&](const YAML::Node& node) { ReadLimits(&reader, node, &access.rates); }}});
  } catch (const YAML::Exception& error) {
    reader.Fault(error.mark, "this is no YAML: " + error.msg);
  }
  std::vector<std::string> faults = reader.TakeFaults();
  if (!faults.empty()) return std::unexpected(std::move(faults));
  return access;
}

std::expected<AccessRules, std::vector<std::string>> ReadAccess(const std::string& file) {
  Result<std::string> text = ReadConfigFile(file);
  if (!text) return std::unexpected(std::vector<std::string>{text.error().message});
  return ParseAccess(*text, file);
}

std::optional<int> CheckAccessIfAsked(int argc, const char* const* argv) {
  return CheckFileIfAsked(argc, argv, {.command = "check-access", .option = "--access"}, [](const std::string& file) {
    const auto access = ReadAccess(file);
    if (!access) return std::expected<std::string, std::vector<std::string>>(std::unexpect, access.error());
    return std::expected<std::string, std::vector<std::string>>(std::to_string(access->rules.size()) +
                                                                (access->rules.size() == 1 ? " entry" : " entries") +
                                                                ", loopback " + std::string(RoleName(access->loopback)));
  });
}

}  // namespace stackd

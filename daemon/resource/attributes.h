// Where a process ran, by the names of OpenTelemetry's resource attributes ("k8s.pod.name").
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stackd {

inline constexpr char kPodName[] = "k8s.pod.name";
inline constexpr char kPodUid[] = "k8s.pod.uid";
inline constexpr char kNamespaceName[] = "k8s.namespace.name";
inline constexpr char kNodeName[] = "k8s.node.name";
inline constexpr char kContainerName[] = "k8s.container.name";
inline constexpr char kImageName[] = "container.image.name";
inline constexpr char kImageTags[] = "container.image.tags";
inline constexpr char kImageDigests[] = "container.image.repo_digests";
inline constexpr char kServiceName[] = "service.name";
inline constexpr char kServiceNamespace[] = "service.namespace";
inline constexpr char kServiceVersion[] = "service.version";
inline constexpr char kServiceInstance[] = "service.instance.id";
// What may stand for the workload of a process; the first that is known is its name.
inline constexpr const char* kWorkloadKeys[] = {"k8s.deployment.name", "k8s.statefulset.name", "k8s.daemonset.name",
                                                "k8s.cronjob.name",    "k8s.job.name",         kServiceName};

// Bounded, because each process in each dump has them, and a list of a thousand must stay below what clients accept.
class Attributes {
 public:
  static constexpr size_t kMaxCount = 32;
  static constexpr size_t kMaxValueBytes = 256;
  static constexpr size_t kMaxTotalBytes = 2048;

  // Keeps a value that the key already has. Leaves out what is empty, a key that is no name, and a value that is too long
  // by itself or in total. Values are not cut. `value` is made valid UTF-8 without control characters.
  void Add(std::string_view key, std::string_view value);

  // "" if it is not known.
  const std::string& Get(std::string_view key) const;
  bool Has(std::string_view key) const { return values_.contains(key); }

  using Map = std::map<std::string, std::string, std::less<>>;
  const Map& values() const { return values_; }

 private:
  Map values_;
  size_t total_bytes_ = 0;
};

// "key=value,key=value", percent-encoded, as OpenTelemetry has it in variables. nullopt if a part makes no sense.
using KeyValuePairs = std::vector<std::pair<std::string, std::string>>;
std::optional<KeyValuePairs> ParseKeyValuePairs(std::string_view text);

// Adds what stands in OTEL_RESOURCE_ATTRIBUTES. As OpenTelemetry wants it, none of it is taken if a part makes no sense.
void AddResourceAttributes(std::string_view text, Attributes* attributes);

}  // namespace stackd

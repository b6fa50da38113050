#include "daemon/resource/locator.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "daemon/resource/container_image.h"
#include "daemon/resource/pod_info.h"
#include "daemon/resource/service.h"

namespace stackd {
namespace {

struct Variable {
  const char* name;
  const char* key;
};
constexpr Variable kOfPod[] = {{"POD_NAME", kPodName}, {"POD_NAMESPACE", kNamespaceName}, {"POD_UID", kPodUid}};
constexpr Variable kOfNode = {"NODE_NAME", kNodeName};
constexpr Variable kOfContainer = {"STACKD_CONTAINER_NAME", kContainerName};

using Variables = std::map<std::string, std::string, std::less<>>;

Variables ParseVariables(std::string_view text) {
  Variables variables;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos) variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return variables;
}

void AddImage(std::string_view reference, Attributes* attributes) {
  const ContainerImage image = ParseContainerImage(reference);
  attributes->Add(kImageName, image.name);
  attributes->Add(kImageTags, image.tag);
  if (!image.digest.empty()) attributes->Add(kImageDigests, std::string(image.name) + "@" + std::string(image.digest));
}

}  // namespace

Locator::Locator(LocatorOptions options) : options_(std::move(options)) {}

LocatorOptions Locator::OfThisProcess(const std::string& pod_info_dir) {
  char hostname[256] = {};
  if (gethostname(hostname, sizeof(hostname) - 1) != 0) hostname[0] = '\0';
  return {hostname, pod_info_dir, [](const char* name) {
            const char* value = getenv(name);
            return std::string(value == nullptr ? "" : value);
          }};
}

Attributes Locator::Locate(std::string_view hostname, std::string_view variables) const {
  const Variables own = ParseVariables(variables);
  const auto said = [&own](const char* name) -> std::string_view {
    const auto found = own.find(name);
    return found == own.end() ? std::string_view() : std::string_view(found->second);
  };
  Attributes attributes;
  Attributes of_process;
  AddResourceAttributes(said("OTEL_RESOURCE_ATTRIBUTES"), &of_process);
  // The names that operators look for first: there may be no room for all.
  attributes.Add(kServiceName, said("OTEL_SERVICE_NAME"));
  for (const char* key : {kServiceName, kServiceNamespace, kServiceVersion, kServiceInstance}) {
    attributes.Add(key, of_process.Get(key));
  }
  for (const auto& [name, key] : kOfPod) attributes.Add(key, said(name));
  attributes.Add(kOfNode.key, said(kOfNode.name));
  attributes.Add(kOfContainer.key, said(kOfContainer.name));
  AddImage(said("STACKD_CONTAINER_IMAGE"), &attributes);

  // A process that names another pod is in that pod, whatever its host name.
  const std::string pod_name = options_.variable("POD_NAME");
  const bool is_in_this_pod = !options_.hostname.empty() && hostname == options_.hostname &&
                              (!attributes.Has(kPodName) || attributes.Get(kPodName) == pod_name);
  PodInfo pod;
  if (is_in_this_pod) {
    for (const auto& [name, key] : kOfPod) attributes.Add(key, options_.variable(name));
    pod = ReadPodInfo(options_.pod_info_dir);
  }
  // Memory is shared on one node only.
  attributes.Add(kOfNode.key, options_.variable(kOfNode.name));
  AddService(pod, &attributes);
  for (const auto& [key, value] : of_process.values()) attributes.Add(key, value);
  AddAnnotations(pod, &attributes);
  return attributes;
}

Attributes Locator::LocateDaemon() const {
  Attributes attributes;
  attributes.Add(kServiceName, "stackd");
  for (const auto& [name, key] : kOfPod) attributes.Add(key, options_.variable(name));
  attributes.Add(kOfNode.key, options_.variable(kOfNode.name));
  return attributes;
}

}  // namespace stackd

#include "daemon/resource/service.h"

#include <string>
#include <string_view>

namespace stackd {
namespace {

constexpr std::string_view kAnnotation = "resource.opentelemetry.io/";

std::string_view ValueOf(const PodInfo::Map& map, std::string_view key) {
  const auto found = map.find(key);
  return found == map.end() ? std::string_view() : std::string_view(found->second);
}

std::string_view WithoutLastPart(std::string_view name) {
  const size_t dash = name.rfind('-');
  return dash == std::string_view::npos ? name : name.substr(0, dash);
}

// Names the controller that made the pod, without asking the API server. Controllers name pods after themselves, and leave
// a label that says which of them it was.
std::string_view OwnerName(const PodInfo& pod, std::string_view pod_name) {
  if (const auto job = ValueOf(pod.labels, "batch.kubernetes.io/job-name"); !job.empty()) return job;
  if (const auto job = ValueOf(pod.labels, "job-name"); !job.empty()) return job;
  if (const auto hash = ValueOf(pod.labels, "pod-template-hash"); !hash.empty()) {
    // DEPLOYMENT-HASH-SUFFIX
    const std::string_view replica_set = WithoutLastPart(pod_name);
    return replica_set.ends_with(hash) ? WithoutLastPart(replica_set) : replica_set;
  }
  // STATEFULSET-NUMBER, DAEMONSET-SUFFIX
  const bool is_owned =
      pod.labels.contains("statefulset.kubernetes.io/pod-name") || pod.labels.contains("controller-revision-hash");
  return is_owned ? WithoutLastPart(pod_name) : std::string_view();
}

std::string InstanceOf(const Attributes& attributes) {
  const std::string &space = attributes.Get(kNamespaceName), &pod = attributes.Get(kPodName),
                    &container = attributes.Get(kContainerName);
  return space.empty() || pod.empty() || container.empty() ? "" : space + "." + pod + "." + container;
}

}  // namespace

void AddService(const PodInfo& pod, Attributes* attributes) {
  for (const char* key : {kServiceName, kServiceNamespace, kServiceVersion, kServiceInstance}) {
    attributes->Add(key, ValueOf(pod.annotations, std::string(kAnnotation) + key));
  }
  attributes->Add(kServiceName, ValueOf(pod.labels, "app.kubernetes.io/instance"));
  attributes->Add(kServiceName, ValueOf(pod.labels, "app.kubernetes.io/name"));
  attributes->Add(kServiceName, OwnerName(pod, attributes->Get(kPodName)));
  attributes->Add(kServiceName, attributes->Get(kPodName));
  attributes->Add(kServiceName, attributes->Get(kContainerName));
  attributes->Add(kServiceNamespace, attributes->Get(kNamespaceName));
  attributes->Add(kServiceVersion, ValueOf(pod.labels, "app.kubernetes.io/version"));
  attributes->Add(kServiceVersion, attributes->Get(kImageTags));
  attributes->Add(kServiceInstance, InstanceOf(*attributes));
}

void AddAnnotations(const PodInfo& pod, Attributes* attributes) {
  for (const auto& [key, value] : pod.annotations) {
    if (key.starts_with(kAnnotation)) attributes->Add(std::string_view(key).substr(kAnnotation.size()), value);
  }
}

}  // namespace stackd

#include "client/place.h"

#include "daemon/resource/attributes.h"

namespace stackd {
namespace {

std::string Attribute(const v1::Process& process, const char* key) {
  const auto found = process.resource_attributes().find(key);
  return found == process.resource_attributes().end() ? std::string() : found->second;
}

}  // namespace

std::string PodOf(const v1::Process& process) { return Attribute(process, kPodName); }

std::string ContainerOf(const v1::Process& process) { return Attribute(process, kContainerName); }

std::string WorkloadOf(const v1::Process& process) {
  for (const char* key : kWorkloadKeys) {
    if (std::string name = Attribute(process, key); !name.empty()) return name;
  }
  return {};
}

std::string WhereText(const v1::Process& process) {
  const std::string pod = PodOf(process), container = ContainerOf(process);
  if (!pod.empty() && !container.empty()) return pod + "/" + container;
  if (!pod.empty()) return pod;
  return container.empty() ? process.hostname() : container;
}

}  // namespace stackd

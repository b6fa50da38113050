// What a process in a pod is called as a service, in the order that OpenTelemetry recommends.
#pragma once

#include "daemon/resource/attributes.h"
#include "daemon/resource/pod_info.h"

namespace stackd {

// Adds service.name, .namespace, .version and .instance.id as far as they are not known yet, from what is known of the pod
// and the container.
void AddService(const PodInfo& pod, Attributes* attributes);

// Adds KEY for each annotation "resource.opentelemetry.io/KEY".
void AddAnnotations(const PodInfo& pod, Attributes* attributes);

}  // namespace stackd

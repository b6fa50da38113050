// Where a process runs, in the words of Kubernetes.
#pragma once

#include <string>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Each empty if it is not known.
std::string PodOf(const v1::Process& process);
std::string ContainerOf(const v1::Process& process);
// The deployment or other owner, else the service.
std::string WorkloadOf(const v1::Process& process);

// "checkout-5d8f/app": pod and container, as far as they are known; else the name of the host.
std::string WhereText(const v1::Process& process);

}  // namespace stackd

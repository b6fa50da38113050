// Where a process runs: its pod, node, container and service, as far as the daemon's and its own environment tell.
//
// The downward API describes the daemon's pod, by environment (POD_NAME, ...) and files (/etc/podinfo). A process is in the
// same pod if it has the same host name. What a process says of itself is checked for form, not for truth.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "daemon/resource/attributes.h"

namespace stackd {

struct LocatorOptions {
  std::string hostname;  // of the daemon
  std::string pod_info_dir = "/etc/podinfo";
  // Reads the daemon's environment; "" for a variable that is not set.
  std::function<std::string(const char* name)> variable;
};

// Thread-safe.
class Locator {
 public:
  explicit Locator(LocatorOptions options);
  // With this process's host name and environment.
  static LocatorOptions OfThisProcess(const std::string& pod_info_dir);

  // Locates a process: `variables` as its agent sent them (STACKD_PLACE_VARIABLES in wire.h).
  Attributes Locate(std::string_view hostname, std::string_view variables) const;
  // Locates the daemon itself.
  Attributes LocateDaemon() const;

 private:
  const LocatorOptions options_;
};

}  // namespace stackd

// Labels and annotations of the pod, as the downward API writes them to files.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace stackd {

struct PodInfo {
  using Map = std::map<std::string, std::string, std::less<>>;
  Map labels;
  Map annotations;
};

// Parses lines like `app.kubernetes.io/name="checkout"`, the value quoted as Go does. Leaves out other lines, and values
// that are too long to be of use: annotations may hold whole manifests.
PodInfo::Map ParseDownwardApi(std::string_view text);

// Reads DIR/labels and DIR/annotations; a missing file is empty.
PodInfo ReadPodInfo(const std::string& dir);

}  // namespace stackd

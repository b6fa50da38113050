// "registry.example:5000/shop/checkout:1.4@sha256:…", taken apart.
#pragma once

#include <string_view>

namespace stackd {

struct ContainerImage {
  std::string_view name;    // "registry.example:5000/shop/checkout"
  std::string_view tag;     // "1.4"
  std::string_view digest;  // "sha256:…"
};

ContainerImage ParseContainerImage(std::string_view reference);

}  // namespace stackd

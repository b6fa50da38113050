#include "daemon/resource/container_image.h"

namespace stackd {

ContainerImage ParseContainerImage(std::string_view reference) {
  ContainerImage image;
  if (const size_t at = reference.find('@'); at != std::string_view::npos) {
    image.digest = reference.substr(at + 1);
    reference = reference.substr(0, at);
  }
  const size_t colon = reference.rfind(':');
  const size_t slash = reference.rfind('/');
  // A colon before the last slash is that of a port.
  const bool has_tag = colon != std::string_view::npos && (slash == std::string_view::npos || colon > slash);
  image.name = reference.substr(0, has_tag ? colon : reference.size());
  if (has_tag) image.tag = reference.substr(colon + 1);
  return image;
}

}  // namespace stackd

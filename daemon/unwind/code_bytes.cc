#include "daemon/unwind/code_bytes.h"

namespace stackd {

std::optional<std::vector<uint8_t>> ReadCode(const AddressMap& map, uint64_t avma, uint32_t size_bytes) {
  const Mapping* mapping = map.Find(avma);
  if (mapping == nullptr || mapping->module == nullptr) return std::nullopt;
  const auto position = mapping->module->SvmaToPosition(avma - mapping->bias);
  if (!position) return std::nullopt;
  auto bytes = mapping->module->Read(*position, size_bytes);
  if (!bytes) return std::nullopt;
  return *std::move(bytes);
}

}  // namespace stackd

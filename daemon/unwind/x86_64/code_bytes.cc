#include "daemon/unwind/x86_64/code_bytes.h"

#include "daemon/unwind/x86_64/call_instruction.h"

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

bool MayFollowCall(const AddressMap& map, uint64_t avma) {
  const Mapping* mapping = map.Find(avma);
  if (mapping == nullptr || !mapping->executable || avma - mapping->start_avma < kLongestCallBytes) return false;
  const auto before = ReadCode(map, avma - kLongestCallBytes, kLongestCallBytes);
  return !before || EndsWithCall(*before);
}

std::optional<uint64_t> TargetOfCallBefore(const AddressMap& map, uint64_t return_avma) {
  const auto before = ReadCode(map, return_avma - kLongestCallBytes, kLongestCallBytes);
  return before ? TargetOfCall(*before, return_avma) : std::nullopt;
}

}  // namespace stackd

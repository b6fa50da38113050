// What a caller may do. Each role may also do what those before it may.
#pragma once

#include <cstdint>
#include <string_view>

namespace stackd {

enum class Role : uint8_t {
  kNone,
  kRead,   // names and stacks of what is stored
  kDump,   // cause a capture
  kAdmin,  // delete, and take registers and stacks out as they were copied
};

constexpr std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kNone:
      return "none";
    case Role::kRead:
      return "read";
    case Role::kDump:
      return "dump";
    case Role::kAdmin:
      break;
  }
  return "admin";
}

}  // namespace stackd

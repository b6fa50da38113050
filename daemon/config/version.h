#pragma once

namespace stackd {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace stackd

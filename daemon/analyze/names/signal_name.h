// Signals and their codes as signal.h names them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stackd {

// "SIGSEGV"; "signal 40" for a number without a name.
std::string SignalName(int32_t signal_number);

// "SEGV_MAPERR", "SI_TKILL"; empty for a code without a name.
std::string_view SignalCodeName(int32_t signal_number, int32_t code);

}  // namespace stackd

// Times and threads in sentences.
#pragma once

#include <cstdint>
#include <string>

namespace stackd {

// "250 ms", "5.2 s", "60 s", "10 min"
std::string DurationInWords(int64_t ns);

// "thread 12"
std::string ThreadInWords(int32_t tid);

}  // namespace stackd

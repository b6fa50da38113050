// Times in sentences.
#pragma once

#include <cstdint>
#include <string>

namespace stackd {

// "250 ms", "5.2 s", "60 s", "10 min"
std::string DurationInWords(int64_t ns);

}  // namespace stackd

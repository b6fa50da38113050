// Which stored dumps a request to compare means.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/store/dump_store.h"

namespace stackd {

// Names, in order of time as far as the store tells.
struct ComparedDumps {
  std::string before;
  std::string after;
  std::vector<std::string> between;  // of the same process, at most 8, spread over all that there are
};

// Chooses dumps for names that are empty, as in CompareDumpsRequest. Names that are given are not looked for: the store may
// never have taken these dumps. Fails with DUMP_NOT_FOUND where there is none to choose, with BAD_NAME where both are the
// same dump.
Result<ComparedDumps> ChooseComparedDumps(const DumpStore& store, const std::string& before, const std::string& after);

}  // namespace stackd

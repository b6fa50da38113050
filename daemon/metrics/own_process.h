// What the daemon itself uses, by the names that all Prometheus clients use (process_*).
#pragma once

#include "daemon/metrics/exposition.h"

namespace stackd {

void WriteOwnProcess(Exposition* out);

}  // namespace stackd

// A comparison cut to what a stock client accepts.
#pragma once

#include <cstddef>

#include "daemon/serve/requests/dump_view.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// At most about `budget_bytes` large: the sentence, findings and lines first, then the threads of most concern. Threads
// left out are counted in omitted_thread_count; of findings and lines, the last line says that some are missing.
v1::DumpComparison FittingAnswer(v1::DumpComparison comparison, size_t budget_bytes = kAnswerBudgetBytes);

}  // namespace stackd

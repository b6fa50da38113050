// What decides on a call, and remembers it.
#pragma once

#include <memory>

#include "daemon/access/access_file.h"
#include "daemon/access/answer_budget.h"
#include "daemon/access/audit.h"
#include "daemon/access/caller_limits.h"
#include "daemon/access/page_seal.h"

namespace stackd {

struct AccessControl {
  std::unique_ptr<AccessFile> file;
  CallerLimits limits;
  AnswerBudget answers;
  PageSeal page_seal;
  Audit audit;
};

}  // namespace stackd

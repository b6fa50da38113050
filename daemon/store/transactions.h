// Reads and writes of the store's file. Where it turns out to be corrupt or gone, a new one is begun.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/store/database.h"
#include "daemon/store/dump_store.h"
#include "daemon/store/eviction.h"

namespace stackd {

// Thread safety: one thread at a time.
class Transactions {
 public:
  explicit Transactions(const DumpStoreOptions& options) : file_(options.file), max_bytes_(options.max_bytes) {}

  // Must succeed before all else.
  Result<void> Open();

  // Bodies give SQLITE_DONE or an error; a read may give SQLITE_ROW, too. Both fail with kUnavailable STORE_UNAVAILABLE.
  // Runs `body` in a transaction, which also changes the totals or leaves them.
  Result<void> Write(const std::function<int(Database*, Totals*)>& body);
  Result<void> Read(const std::function<int(Database*)>& body);
  // Gives free pages back to the disk, some of those that no dump has used for long.
  void GiveBackFreePages();

  const Totals& totals() const { return totals_; }
  // Unfinished dumps above it were begun by this daemon.
  int64_t last_id_at_open() const { return last_id_at_open_; }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  Result<void> Reopen();
  Result<void> Failed(const char* what, int code);

  const std::string file_;
  const int64_t max_bytes_;
  std::optional<Database> database_;  // empty: to be opened again
  int64_t last_id_at_open_ = 0;
  Totals totals_;
  std::vector<std::string> problems_;
};

}  // namespace stackd

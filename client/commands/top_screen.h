// What `stackctl top` shows: lines of text made of what the API told, and of what was pressed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/terminal.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// What the daemon said at one time.
struct Look {
  std::vector<v1::Process> processes;
  int64_t at_ns = 0;  // CLOCK_MONOTONIC
};

struct TopRow {
  v1::Process process;
  std::optional<double> cpu_percent;  // of one core, since the look before; nullopt: not known
};

// What hangs first, then what may hang, then by the processor that it uses.
std::vector<TopRow> TopRows(const Look& before, const Look& now);

// "3 processes: 1 hung, 2 well; 130 % CPU".
std::string TopSummary(const std::vector<TopRow>& rows);

// A head and one line for each row.
std::vector<std::string> TopTable(const std::vector<TopRow>& rows);

// Where `at`, an index below `count`, goes with a key; a page is that long.
size_t Moved(size_t at, Key key, size_t count, size_t page);

// The first line of a list to show, so that the one at `cursor` is seen; `first` was it before.
size_t FirstShown(size_t first, size_t cursor, size_t count, size_t height);

}  // namespace stackd

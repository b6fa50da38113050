#include "daemon/serve/requests/compared_dumps.h"

#include <algorithm>
#include <utility>

namespace stackd {
namespace {

constexpr size_t kMaxBetween = 8;
constexpr int32_t kPageSize = 200;
// Older ones are not looked for: a series that is worth comparing is short.
constexpr size_t kMaxListed = 1000;

// The process of a dump's name; empty if it has none.
std::string ProcessOf(const std::string& dump_name) {
  const size_t end = dump_name.find("/dumps/");
  return end == std::string::npos ? "" : dump_name.substr(0, end);
}

// Lists the dumps of a process, newest first.
Result<std::vector<std::string>> Listed(const DumpStore& store, const std::string& process) {
  std::vector<std::string> names;
  if (process.empty()) return names;
  DumpQuery query{.parent = process, .page_size = kPageSize};
  do {
    Result<DumpPage> page = store.List(query);
    if (!page) return std::unexpected(page.error());
    for (const v1::Dump& dump : page->dumps) names.push_back(dump.name());
    query.page_token = page->next_page_token;
  } while (!query.page_token.empty() && names.size() < kMaxListed);
  return names;
}

// The error for a dump `name` that nothing goes with, perhaps because it is not there itself.
Result<ComparedDumps> NothingToCompare(const DumpStore& store, const std::string& name, const char* earlier_or_later) {
  if (auto found = store.Find(name); !found) return std::unexpected(found.error());
  return Error(Code::kNotFound,
               std::string("there is no ") + earlier_or_later + " dump of the process of " + name +
                   "; take one with stackctl dump, or some with stackctl dump --samples 3",
               "DUMP_NOT_FOUND");
}

// The dumps between two places of a list that is newest first: oldest first, thinned out evenly.
std::vector<std::string> Between(const std::vector<std::string>& names, size_t newer, size_t older) {
  std::vector<std::string> between;
  const size_t count = older - newer - 1, wanted = std::min(count, kMaxBetween);
  for (size_t i = 0; i < wanted; ++i) between.push_back(names[older - 1 - i * count / wanted]);
  return between;
}

}  // namespace

Result<ComparedDumps> ChooseComparedDumps(const DumpStore& store, const std::string& before, const std::string& after) {
  if (!before.empty() && before == after) {
    return Error(Code::kInvalidArgument, "this is one dump twice; name two dumps of one process", "BAD_NAME");
  }
  ComparedDumps chosen{before, after, {}};
  if (before.empty() && after.empty()) {
    Result<std::string> newest = store.Newest();
    if (!newest) return std::unexpected(newest.error());
    chosen.after = *newest;
  }
  Result<std::vector<std::string>> listed = Listed(store, ProcessOf(chosen.after.empty() ? before : chosen.after));
  if (!listed) return std::unexpected(listed.error());
  const std::vector<std::string>& names = *listed;
  if (chosen.after.empty()) {
    if (names.empty() || names[0] == before) return NothingToCompare(store, before, "later");
    chosen.after = names[0];
  }
  auto newer = std::ranges::find(names, chosen.after);
  if (chosen.before.empty()) {
    if (newer == names.end() || newer + 1 == names.end()) return NothingToCompare(store, chosen.after, "earlier");
    chosen.before = *(newer + 1);
  }
  auto older = std::ranges::find(names, chosen.before);
  if (newer == names.end() || older == names.end()) return chosen;
  if (older < newer) {
    std::swap(chosen.before, chosen.after);
    std::swap(older, newer);
  }
  chosen.between = Between(names, static_cast<size_t>(newer - names.begin()), static_cast<size_t>(older - names.begin()));
  return chosen;
}

}  // namespace stackd

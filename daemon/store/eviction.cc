#include "daemon/store/eviction.h"

namespace stackd {
namespace {

// Share of the limits that is for dumps that are no crashes, however many crashes there are.
constexpr int64_t kShareOfOthers = 4;

}  // namespace

Victim ChooseVictim(const DumpStoreOptions& limits, const Totals& totals, std::optional<int64_t> now_seconds,
                    const DumpRow& crash, const DumpRow& other) {
  for (const DumpRow* oldest : {&other, &crash}) {
    const bool is_too_old = now_seconds && oldest->create_seconds < *now_seconds - limits.max_age_seconds;
    if (oldest->id != 0 && is_too_old) return {oldest, &Evictions::age};
  }
  const bool too_many = totals.dumps() > limits.max_dumps, too_large = totals.bytes() > limits.max_bytes;
  if (!too_many && !too_large) return {};
  // A crash cannot be had again, a dump on request can. But a store full of crashes must not lose a dump that a caller just
  // asked for.
  const bool others_have_their_share = too_many ? totals.others.dumps <= limits.max_dumps / kShareOfOthers
                                                : totals.others.bytes <= limits.max_bytes / kShareOfOthers;
  const DumpRow& oldest = crash.id != 0 && (other.id == 0 || others_have_their_share) ? crash : other;
  return {oldest.id == 0 ? nullptr : &oldest, too_many ? &Evictions::count : &Evictions::bytes};
}

}  // namespace stackd

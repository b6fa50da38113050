#include "daemon/store/dump_header.h"

#include <google/protobuf/util/field_mask_util.h>

#include <algorithm>
#include <iterator>

#include "daemon/store/dump_store.h"

namespace stackd {
namespace {

// What lists show. By exclusion, so that a field which the API gets later is not forgotten here.
google::protobuf::FieldMask HeaderFields() {
  constexpr int kExcluded[] = {v1::Dump::kGroupsFieldNumber,  v1::Dump::kThreadsFieldNumber, v1::Dump::kStacksFieldNumber,
                               v1::Dump::kModulesFieldNumber, v1::Dump::kLinesFieldNumber,   v1::Dump::kTasksFieldNumber,
                               v1::Dump::kReportsFieldNumber};
  google::protobuf::FieldMask mask;
  const auto* descriptor = v1::Dump::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    if (std::ranges::find(kExcluded, descriptor->field(i)->number()) != std::end(kExcluded)) continue;
    mask.add_paths(descriptor->field(i)->name());
  }
  return mask;
}

}  // namespace

std::string SerializeHeader(const v1::Dump& dump) {
  static const auto* const kFields = new google::protobuf::FieldMask(HeaderFields());
  v1::Dump header;
  google::protobuf::util::FieldMaskUtil::MergeMessageTo(dump, *kFields, {}, &header);
  if (header.has_crash()) header.mutable_crash()->clear_fingerprint_frames();
  if (header.has_hang()) header.mutable_hang()->clear_fingerprint_frames();
  for (v1::Finding& finding : *header.mutable_findings()) {
    // Which threads are concerned may be long.
    finding.clear_details();
    finding.clear_edges();
    finding.clear_tids();
  }
  return header.SerializeAsString();
}

Result<v1::Dump> ParseDump(const std::string& name, const std::string& bytes) {
  v1::Dump dump;
  if (!dump.ParseFromString(bytes)) return Error(Code::kDataLoss, "the dump " + name + " is damaged in the store");
  dump.set_stored(true);
  return dump;
}

void MarkUnfinished(bool begun_by_this_daemon, int64_t attempts, v1::Dump* dump) {
  dump->set_state(v1::Dump::PARTIAL);
  if (!begun_by_this_daemon && attempts >= DumpStore::kMaxAttempts) {
    dump->add_notes("stackd ended " + std::to_string(attempts) +
                    " times while it unwound the stacks, so it does not try again: they are stored as they were copied "
                    "(stackctl resymbolize tries once more)");
    return;
  }
  dump->add_notes(begun_by_this_daemon
                      ? "its stacks were copied and stored, but are not unwound yet"
                      : "the daemon ended before the stacks were unwound: they are stored as they were copied");
}

}  // namespace stackd

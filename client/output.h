// Text for terminals and pipes.
#pragma once

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/message.h>
#include <google/protobuf/timestamp.pb.h>

#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Columns as wide as their widest cell; the first row is the head. Cells hold names that processes chose: what a terminal
// would obey is replaced.
std::string Table(std::vector<std::vector<std::string>> rows);

// "2026-11-21T03:14:15Z"; "-" if unset.
std::string TimeText(const google::protobuf::Timestamp& time);

// "12.3s", "4m05s", "3h12m", "9d04h".
std::string SpanText(int64_t span_ns);

// "well", "suspicious", "hung"; "-" if it was not looked at.
std::string HealthText(const v1::Process& process);

// "names"; "-" if the agent does not say.
std::string ShareText(const v1::Process& process);

// Proto3 JSON, indented, with a newline; or in one line.
std::string Json(const google::protobuf::Message& message, bool indented = true);

// "REQUEST", "COMPLETE": names of enum values of a dump.
std::string TriggerText(const v1::Dump& dump);
std::string StateText(const v1::Dump& dump);

// Why there is a dump that no user asked for, in one sentence: what died, or what hangs; empty for other dumps.
std::string CauseText(const v1::Dump& dump);

// "12", or "11 of 12" when not every thread was captured.
std::string ThreadsText(const v1::ThreadCounts& counts);

// Writes to standard output. False: it could not be written, and standard error says why.
bool Print(std::string_view text);
// Writes also what is still in the buffer; called before the program ends, and where a reader waits.
bool FlushOutput();

// Writes one sentence to standard error.
void Complain(const std::string& sentence);

}  // namespace stackd

// One function per command; each prints its result and returns the exit code (exit_code.h).
#pragma once

#include <string>
#include <vector>

#include "client/api.h"
#include "client/options.h"
#include "daemon/export/export.h"

namespace stackd {

int RunPs(Api& api, const Options& options);
int RunTop(Api& api, const Options& options);
int RunExplain(Api& api, const Options& options);
int RunDump(Api& api, const Options& options);
int RunList(Api& api, const Options& options);
int RunDiff(Api& api, const Options& options);
int RunShow(Api& api, const Options& options);
int RunGroups(Api& api, const Options& options);
int RunWatch(Api& api, const Options& options);
int RunResymbolize(Api& api, const Options& options);
int RunRecord(Api& api, const Options& options);
int RunExport(Api& api, const Options& options);
int RunDelete(Api& api, const Options& options);
int RunDoctor(Api& api, const Options& options);
int RunVersion(Api& api, const Options& options);
int RunCompletion(Api& api, const Options& options);

// Says what went wrong, and gives the exit code for it.
int Failed(const Status& status);

// The daemon's folder: that of its Unix socket at `address`, else what STACKD_DIR says.
std::string DirOf(const std::string& address);

// dump --pid of a process that the daemon does not know, or is not asked for: read by this program.
int RunOutsideDump(const Options& options);

// dump --core: of a core file, read by this program.
int RunCoreDump(const Options& options);

// All that the daemon knows and that fit the filter, page by page.
Result<std::vector<v1::Process>> AllProcesses(Api& api, const std::string& filter = {});

// A process and its descendants: dump --tree.
int RunDumpTree(Api& api, const Options& options);

// Several dumps of one process, and what has changed between them: dump --samples.
int RunSamples(Api& api, const Options& options);

// Says what a dump that is printed lacks, and gives the exit code for it.
int PartialOrOk(const v1::Dump& dump);
// Does the same for a dump that can be made again at any time, stored or not.
int CodeOfState(const v1::Dump& dump);

// What -o, -f and --all ask for.
v1::ExportDumpRequest::Format FormatOf(const Options& options);

// What --quiet asks for.
v1::Quiet QuietOf(const Options& options);

// What --managed-only and --native-only ask for.
v1::FrameFilter FramesOf(const Options& options);

// For a dump, in the form that was asked for; the newest if `name` is empty.
v1::ExportDumpRequest ExportRequest(const std::string& name, const Options& options);

// Line by line, as the daemon rendered them. False: they could not be written.
bool PrintLines(const google::protobuf::RepeatedPtrField<std::string>& lines);

// Prints a dump that this program has made. False: it could not be written.
bool PrintAs(v1::ExportDumpRequest::Format format, const v1::Dump& dump);

// Gives a dump to `sink` as the daemon renders it. A gateway of a fleet renders none: then it is rendered here.
Result<void> ExportDump(Api& api, const v1::ExportDumpRequest& request, const Sink& sink);

// Prints a dump, rendered likewise.
Result<void> PrintDump(Api& api, const v1::ExportDumpRequest& request);

}  // namespace stackd

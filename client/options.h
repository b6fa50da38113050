// What stackctl was told by its arguments and environment.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

namespace stackd {

struct Options {
  std::string command;  // one of CommandNames()
  std::string address;  // "unix:PATH" or "HOST:PORT"
  // Files for TLS; all empty: no TLS. Without `tls_ca` the system's authorities are trusted.
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
  int64_t timeout_ms = 0;
  bool json = false;

  std::string
      name;  // of a process, a dump, a finding or a shell: the command's positional argument; empty if none was given
  std::string second_name;  // diff: of the other dump; empty if none was given
  std::string filter;       // ps, top, list, groups
  bool wide = false;        // ps
  bool watch = false;       // ps: go on with what changes
  bool once = false;        // top: no screen
  bool tree = false;        // dump: of the descendants too
  int64_t since_ms = 0;     // list: only dumps that are not older; 0: all
  int limit = 0;            // list: the newest so many; 0: all
  bool crashes = false;     // list: only these
  bool hangs = false;       // list, groups: only these
  std::string explain;      // groups: a fingerprint; empty if none was given
  int pid = 0;              // dump, record: of a process with or without an agent; 0: `name` says which
  bool no_daemon = false;   // dump --pid: the daemon is not asked
  bool no_ptrace = false;   // dump --pid: threads that run are not stopped
  std::string core;         // dump: a core file; empty: of a process
  std::string executable;   // dump --core: where its program is; empty: where the core says
  int samples = 1;          // dump: how many to take
  int64_t every_ms =
      -1;  // dump, record: from the beginning of one to that of the next; top: between looks; -1: record finds it
  int64_t for_ms = 30'000;  // record: how long
  // dump, show, export: "text", "json", "folded"; export: and "pprof", "speedscope", "minidump"; record: "text", "folded",
  // "pprof", "speedscope"
  std::string format;
  std::string quiet = "prefer";  // dump: "prefer", "only", "never"
  std::string to = "-";
  bool all = false;
  bool managed_only = false;  // dump, show, export: only frames that a runtime told of
  bool native_only = false;   // dump, show, export: only the others
};

// The program ends here: after --help, --version, or a mistake.
struct OptionsExit {
  int exit_code;     // 0, or 2 for a mistake
  std::string text;  // for stdout if exit_code is 0, else one sentence for stderr
};

const std::vector<std::string>& CommandNames();

std::expected<Options, OptionsExit> ParseOptions(int argc, const char* const* argv);

}  // namespace stackd

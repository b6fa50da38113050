#include "client/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "daemon/base/near_name.h"
#include "daemon/config/units.h"
#include "daemon/config/version.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

constexpr char kDescription[] = R"(stackctl shows what the threads of a process are doing.

Examples:
  stackctl top                         what hangs, and who uses the processor, as it changes
  stackctl ps -w                       which processes can be dumped, and where they run
  stackctl dump                        stacks of the only process there is, equal ones grouped
  stackctl dump checkout --all         by name (or pid), thread by thread
  stackctl dump checkout/app           by workload or pod, and container or process
  stackctl list                        dumps that were stored
  stackctl show                        the newest of them
  stackctl dump checkout --samples 3   is it deadlocked, spinning, slow or idle
  stackctl diff                        the same of the last two dumps that are stored
  stackctl groups                      which crashes there were, equal ones counted
  stackctl record checkout --for 10s   who waited for what, over time
  stackctl export NAME -f folded --to stacks.folded
  stackctl explain DEADLOCK            what a finding means, and what to do next
  stackctl doctor 1234                 why process 1234 is not listed
  stackctl help dump                   more of one command)";

constexpr int kMinSamples = 2;
constexpr int kMaxSamples = 100;
constexpr int kMaxLimit = 1'000'000;
constexpr int64_t kMinEveryMs = 100;
constexpr int64_t kMaxEveryMs = 3'600'000;
constexpr int64_t kMinForMs = 1000;
constexpr int64_t kMaxForMs = 3'600'000;
constexpr int64_t kEveryMs = 1000;

constexpr char kFooter[] = R"(Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 cannot connect, 5 partial or out of time.
The manual is client/stackctl.md.)";

std::string VersionText() {
  return std::string("stackctl ") + kVersion + " (agent ABI " + std::to_string(STACKD_ABI_VERSION) + ")\n";
}

std::string DefaultAddress() {
  const char* dir = getenv("STACKD_DIR");
  return std::string("unix:") + (dir == nullptr || *dir == '\0' ? "/run/stackd" : dir) + "/api.sock";
}

std::unexpected<OptionsExit> Mistake(std::string sentence) {
  while (!sentence.empty() && sentence.back() == '\n') sentence.pop_back();
  std::replace(sentence.begin(), sentence.end(), '\n', ' ');
  return std::unexpected(OptionsExit{2, "stackctl: " + sentence + " (see stackctl --help)\n"});
}

CLI::Validator Duration(int64_t* duration_ms) {
  return CLI::Validator(
      [duration_ms](std::string& text) {
        Result<int64_t> parsed = ParseDurationMs(text);
        if (!parsed) return parsed.error().message;
        *duration_ms = *parsed;
        return std::string();
      },
      "");
}

CLI::Option* AddEvery(CLI::App* command, Options* options, const std::string& help) {
  return command->add_option_function<std::string>(
                    "--every", [](const std::string&) {}, help)
      ->check(Duration(&options->every_ms))
      ->type_name("DURATION");
}

void AddPs(CLI::App* app, Options* options) {
  CLI::App* ps = app->add_subcommand("ps", R"(List the processes whose agent is connected.

Examples:
  stackctl ps
  stackctl ps -w                   with workload, pod, container, health and uptime
  stackctl ps --filter checkout    of one program
  stackctl ps --watch              and then a line for each that comes, goes, or changes its health)");
  ps->add_option("--filter", options->filter, "Part of the name, executable or host name")->type_name("TEXT");
  ps->add_flag("-w,--wide", options->wide, "More columns: parent, workload, pod, container, health, uptime");
  ps->add_flag("--watch", options->watch, "Go on with a line for each change, until interrupted");
}

void AddTop(CLI::App* app, Options* options) {
  CLI::App* top = app->add_subcommand("top", R"(Show what hangs, what may hang, and who uses the processor, as it changes.

Examples:
  stackctl top                     arrows choose a process, Enter takes a dump, q ends
  stackctl top --filter checkout   of one program
  stackctl top --once              one time, for a script or a ticket)");
  top->add_option("--filter", options->filter, "Part of the name, executable or host name")->type_name("TEXT");
  top->add_flag("--once", options->once, "Print it one time; so does a pipe");
  AddEvery(top, options, "Time from one look to the next; 1s by default");
}

void AddList(CLI::App* app, Options* options) {
  CLI::App* list = app->add_subcommand("list", R"(List the stored dumps, newest first.

Examples:
  stackctl list --since 10m        what came in the last ten minutes
  stackctl list --limit 20         the newest twenty
  stackctl list --crashes          what died)");
  list->add_option("PROCESS", options->name, "processes/...: only of this process, which may be gone")->type_name("");
  list->add_option("--filter", options->filter, "Part of the process's name")->type_name("TEXT");
  list->add_option_function<std::string>(
          "--since", [](const std::string&) {}, "Only dumps that are no older, like 10m or 2h")
      ->check(Duration(&options->since_ms))
      ->type_name("DURATION");
  list->add_option("--limit", options->limit, "Only the newest N")->check(CLI::Range(1, kMaxLimit))->type_name("N");
  CLI::Option* crashes = list->add_flag("--crashes", options->crashes, "Only crashes, each with what died");
  list->add_flag("--hangs", options->hangs, "Only hangs, each with what hung")->excludes(crashes);
}

void AddExplain(CLI::App* app, Options* options) {
  CLI::App* explain =
      app->add_subcommand("explain", R"(Say what a finding means, what of it is certain, and what to do next.

Examples:
  stackctl explain                 which findings there are
  stackctl explain DEADLOCK
  stackctl explain owner-blocked)");
  explain->add_option("FINDING", options->name, "As a dump names it; all if left out")->type_name("");
}

void AddSamples(CLI::App* dump, Options* options, CLI::Option* tree) {
  CLI::Option* samples = dump->add_option("--samples", options->samples,
                                          "Take so many dumps; print the last, and what has changed between them")
                             ->check(CLI::Range(kMinSamples, kMaxSamples))
                             ->excludes(tree)
                             ->type_name("N");
  AddEvery(dump, options, "Time from one to the next; 1s by default")->needs(samples);
}

CLI::Option* AddPid(CLI::App* command, Options* options, CLI::Option* process) {
  return command
      ->add_option("--pid", options->pid,
                   "A process as ps shows it here, with or without an agent, if you may read its memory")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
            return is_number && text.find_first_not_of('0') != std::string::npos
                       ? std::string()
                       : "\"" + text + "\" is not the number of a process";
          },
          ""))
      ->excludes(process)
      ->type_name("N");
}

void AddWithoutAgent(CLI::App* dump, Options* options, CLI::Option* pid) {
  dump->add_flag("--no-daemon", options->no_daemon, "With --pid: read the process here, and ask no daemon")->needs(pid);
  dump->add_flag("--no-ptrace", options->no_ptrace,
                 "With --pid, without an agent: stop no thread; those that run have no stack")
      ->needs(pid);
}

// Goes with what says how a dump is printed, and with nothing that says how a process is asked.
void AddCore(CLI::App* dump, Options* options) {
  CLI::Option* core = dump->add_option("--core", options->core, "A core file, in place of a process")->type_name("FILE");
  for (CLI::Option* other : dump->get_options()) {
    const bool is_of_process = other != core && other != dump->get_help_ptr();
    if (is_of_process) core->excludes(other);
  }
  dump->add_option("--exe", options->executable, "With --core: the program, if it is not where the core says")
      ->needs(core)
      ->type_name("FILE");
}

void AddFormat(CLI::App* command, Options* options, std::vector<std::string> formats) {
  std::string help = formats[0];
  for (size_t i = 1; i < formats.size(); ++i) help += (i + 1 < formats.size() ? ", " : " or ") + formats[i];
  command->add_option("-f,--format", options->format, help)->check(CLI::IsMember(formats))->type_name("FORMAT");
  command->add_flag("--all", options->all, "Thread by thread instead of groups");
  CLI::Option* managed = command->add_flag("--managed-only", options->managed_only,
                                           "Only the frames of Python, Java, JavaScript, Go, PHP and Ruby");
  command->add_flag("--native-only", options->native_only, "Only native frames, those of interpreters too")
      ->excludes(managed);
}

void AddRecord(CLI::App* app, Options* options) {
  CLI::App* record = app->add_subcommand(
      "record", R"(Look again and again where threads are and what they wait for, without interrupting them.

Examples:
  stackctl record checkout --for 10s         through the daemon, by name or pid
  stackctl record --pid 1234                 read by stackctl itself, if you may read its memory
  stackctl record checkout -f pprof --to waits.pb.gz && go tool pprof -top waits.pb.gz
  stackctl record checkout -f speedscope --to waits.speedscope.json
  stackctl record checkout -f folded | flamegraph.pl > waits.svg)");
  CLI::Option* process =
      record
          ->add_option("PROCESS", options->name,
                       "A pid, a name, WORKLOAD/CONTAINER or processes/...; may be left out when there is only one")
          ->type_name("");
  AddPid(record, options, process);
  record->add_option_function<std::string>(
            "--for", [](const std::string&) {}, "How long, from 1s to 1h; 30s by default")
      ->check(Duration(&options->for_ms))
      ->type_name("DURATION");
  AddEvery(record, options,
           "Time from one sample to the next; by default 100ms, and more where samples would take the process more than 5% "
           "of a processor");
  record->add_option("-f,--format", options->format, "text, folded, pprof or speedscope")
      ->check(CLI::IsMember({"text", "folded", "pprof", "speedscope"}))
      ->type_name("FORMAT");
  record->add_option("--to", options->to, "File to write; - is standard output")->type_name("FILE");
}

void AddCommands(CLI::App* app, Options* options) {
  auto add = [&](const std::string& name, const std::string& description) {
    return app->add_subcommand(name, description);
  };
  const std::vector<std::string> printed{"text", "json", "folded"};
  auto take_name = [&](CLI::App* command, const std::string& what, const std::string& help) {
    return command->add_option(what, options->name, help)->type_name("");
  };

  AddPs(app, options);
  AddTop(app, options);
  CLI::App* dump = add("dump", R"(Take the stacks of all threads of a process, store and print them.

Examples:
  stackctl dump                    the only process there is
  stackctl dump 1234 --all         by pid, thread by thread
  stackctl dump checkout -o json   by name, as JSON
  stackctl dump checkout/app       container or process app in the workload or pod checkout
  stackctl dump --tree gunicorn    a process and all that it started, as one answer
  stackctl dump checkout --samples 3 --every 1s
                                   is it deadlocked, spinning, slow or idle?
  stackctl dump --pid 1234         a process that has no agent, read from outside
  stackctl dump --pid 1 --no-daemon
                                   the same where there is no daemon, as in a debug container
  stackctl dump --core core.1234   a process that has ended, out of its core file)");
  CLI::Option* process = take_name(
      dump, "PROCESS", "A pid, a name, WORKLOAD/CONTAINER or processes/...; may be left out when there is only one");
  AddWithoutAgent(dump, options, AddPid(dump, options, process));
  dump->add_option("--quiet", options->quiet,
                   "Signal no thread in a call that a signal could end (prefer, the default), no thread at all (only: "
                   "those that run "
                   "have no stack), or every thread (never)")
      ->check(CLI::IsMember({"prefer", "only", "never"}))
      ->type_name("HOW");
  CLI::Option* tree = dump->add_flag("--tree", options->tree, "The process and its descendants, each with its dump");
  AddSamples(dump, options, tree);
  AddCore(dump, options);
  AddFormat(dump, options, printed);

  AddList(app, options);

  CLI::App* show = add("show", R"(Print a stored dump.

Examples:
  stackctl show                    the newest
  stackctl show processes/7-123/dumps/20261121T031415926Z-1 --all)");
  take_name(show, "NAME", "processes/.../dumps/...; the newest if left out");
  AddFormat(show, options, printed);

  CLI::App* diff = add("diff", R"(Compare two dumps of one process: who moved, who used the processor, and what that means.

Examples:
  stackctl diff                    the last two dumps of the process that was dumped last
  stackctl diff A                  A and the newest dump of its process
  stackctl diff A B -o json        two dumps by name, as JSON)");
  take_name(diff, "A", "processes/.../dumps/...; the last but one if left out");
  diff->add_option("B", options->second_name, "processes/.../dumps/...; the newest if left out")->type_name("");

  CLI::App* groups =
      add("groups", R"(List equal crashes, or equal hangs, those seen last first: how often, since when, and why.

Examples:
  stackctl groups                        what crashes here
  stackctl groups --filter checkout      of one program
  stackctl groups --hangs                what hangs here, as far as a rule had it dumped
  stackctl groups --explain 9f86d081...  why these are equal)");
  groups->add_option("--filter", options->filter, "Part of a process's name, of the function or of the explanation")
      ->type_name("TEXT");
  groups->add_flag("--hangs", options->hangs, "Hangs in place of crashes");
  groups
      ->add_option("--explain", options->explain,
                   "One group: the frames its fingerprint is made of, and those skipped, each with its rule")
      ->type_name("FINGERPRINT");

  CLI::App* watch = add("watch", "Print a line for each dump as it is stored, until interrupted.");
  take_name(watch, "PROCESS", "A pid, a name or processes/...: only of this process");

  CLI::App* export_command = add("export", R"(Write a stored dump in a format for people or tools.

Examples:
  stackctl export -f json --to dump.json
  stackctl export NAME -f folded | flamegraph.pl > stacks.svg
  stackctl export NAME -f pprof --to stacks.pb.gz && go tool pprof -top stacks.pb.gz
  stackctl export NAME -f speedscope --to stacks.speedscope.json
  stackctl export NAME -f minidump --to crash.dmp)");
  take_name(export_command, "NAME", "processes/.../dumps/...; the newest if left out");
  AddFormat(export_command, options, {"text", "json", "folded", "pprof", "speedscope", "minidump"});
  export_command->add_option("--to", options->to, "File to write; - is standard output")->type_name("FILE");

  AddRecord(app, options);
  AddExplain(app, options);

  CLI::App* resymbolize = add("resymbolize", R"(Unwind and name a stored dump anew, when debug files have arrived.

Examples:
  stackctl resymbolize                 the newest
  stackctl resymbolize NAME && stackctl show NAME)");
  take_name(resymbolize, "NAME", "processes/.../dumps/...; the newest if left out");

  CLI::App* delete_command = add("delete", "Delete a stored dump.");
  take_name(delete_command, "NAME", "processes/.../dumps/...")->required();

  CLI::App* doctor = add("doctor", R"(Say what is in the way of dumps, and the way out.

Examples:
  stackctl doctor                  the daemon, its folder, the processes it knows
  stackctl doctor --pid 1234       why process 1234 is not among them, and what dump --pid may read of it)");
  CLI::Option* doctor_process = take_name(doctor, "PID", "A process that should be listed and is not");
  doctor->add_option("--pid", options->name, "The same: besides, what dump --pid may read of it")
      ->excludes(doctor_process)
      ->type_name("N");

  CLI::App* help = add("help", "Say more of one command, or of all.");
  take_name(help, "COMMAND", "As the first word is typed")->check(CLI::IsMember(CommandNames()));

  add("version", "Print the versions of stackctl and of the daemon.");

  CLI::App* completion = add("completion", "Print a completion script: source <(stackctl completion bash)");
  take_name(completion, "SHELL", "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

std::unexpected<OptionsExit> UnknownCommand(const std::string& typed) {
  std::string sentence = "\"" + typed + "\" is not a command";
  std::vector<std::string> near = NearNames(typed, CommandNames());
  if (!near.empty()) sentence += "; did you mean " + near[0] + "?";
  return Mistake(sentence);
}

}  // namespace

const std::vector<std::string>& CommandNames() {
  static const std::vector<std::string> names{"ps",          "top",    "explain", "help",    "dump",      "list",
                                              "show",        "diff",   "groups",  "watch",   "record",    "export",
                                              "resymbolize", "delete", "doctor",  "version", "completion"};
  return names;
}

std::expected<Options, OptionsExit> ParseOptions(int argc, const char* const* argv) {
  Options options;
  options.address = DefaultAddress();
  std::string output = "text", timeout;
  CLI::App app{kDescription, "stackctl"};
  app.footer(kFooter);
  app.set_version_flag("--version", VersionText(), "Print the version and exit");
  app.add_option("--address", options.address, "unix:PATH or HOST:PORT of the daemon")
      ->envname("STACKD_ADDRESS")
      ->type_name("ADDRESS")
      ->capture_default_str();
  app.add_option("--tls-ca", options.tls_ca, "Authorities that the daemon's certificate may be of, PEM: with it, TLS")
      ->envname("STACKD_TLS_CA")
      ->type_name("FILE");
  app.add_option("--tls-cert", options.tls_cert, "Own certificate, PEM; the daemon asks for one")
      ->envname("STACKD_TLS_CERT")
      ->type_name("FILE");
  app.add_option("--tls-key", options.tls_key, "Private key of --tls-cert")->envname("STACKD_TLS_KEY")->type_name("FILE");
  app.add_option("--timeout", timeout,
                 "Give up after this long, like 500ms or 10s; a dump answers with what it has by then")
      ->check(Duration(&options.timeout_ms))
      ->type_name("DURATION");
  app.add_option("-o,--output", output, "text or json")->check(CLI::IsMember({"text", "json"}))->type_name("FORMAT");
  // Options of the program may stand behind the command.
  app.fallthrough();
  AddCommands(&app, &options);
  app.require_subcommand(0, 1);
  // Else CLI11 would complain about an unknown command without saying which one is near.
  app.allow_extras();

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return std::unexpected(OptionsExit{0, app.help()});
  } catch (const CLI::CallForVersion&) {
    return std::unexpected(OptionsExit{0, VersionText()});
  } catch (const CLI::ParseError& error) {
    return Mistake(error.what());
  }
  std::vector<std::string> unknown = app.remaining();
  if (app.get_subcommands().empty()) {
    return unknown.empty() ? Mistake("a command is missing") : UnknownCommand(unknown[0]);
  }
  if (!unknown.empty()) return Mistake("\"" + unknown[0] + "\" is not understood here");
  options.command = app.get_subcommands()[0]->get_name();
  if (options.command == "help") {
    // By help() an app speaks for the command that was found.
    if (options.name.empty()) {
      return std::unexpected(
          OptionsExit{0, app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal)});
    }
    return std::unexpected(OptionsExit{0, app.get_subcommand(options.name)->help(app.get_name())});
  }
  options.json = output == "json";
  if (options.tls_cert.empty() != options.tls_key.empty()) return Mistake("--tls-cert and --tls-key go together");
  if (options.all && !options.format.empty() && options.format != "text") {
    return Mistake("--all goes with text only");
  }
  if (options.samples > 1 && options.format == "folded") return Mistake("--samples goes with text and json only");
  if (options.command == "record" && options.json) return Mistake("record prints text, folded, pprof or speedscope");
  if (options.for_ms < kMinForMs || options.for_ms > kMaxForMs) return Mistake("--for must be from 1s to 1h");
  if (options.every_ms < 0) {
    // record finds its own.
    if (options.command != "record") options.every_ms = kEveryMs;
  } else if (options.every_ms < kMinEveryMs || options.every_ms > kMaxEveryMs) {
    return Mistake("--every must be from 100ms to 1h");
  }
  return options;
}

}  // namespace stackd

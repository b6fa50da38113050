#include "daemon/config/config.h"

#include <CLI/CLI.hpp>
#include <map>

#include "daemon/config/units.h"
#include "daemon/config/version.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

constexpr char kDescription[] =
    R"(stackd takes the stacks of the processes around it when somebody asks or one hangs or crashes, and keeps them.

Examples:
  stackd                                            serve /run/stackd and 127.0.0.1:7443
  stackd --dir /tmp/stackd --listen none            as an ordinary user, on a Unix socket only
  stackd --store :memory: --log-level debug         keep nothing on disk
  stackd --debug-dir /usr/lib/debug --debug-dir /mnt/symbols
  stackd --rules hangs.yaml                         notice these hangs; stackd check-rules hangs.yaml finds mistakes
  stackd --access who.yaml                          who may do what; stackd check-access who.yaml finds mistakes
  stackd --listen 0.0.0.0:7443 --tls-cert tls.crt --tls-key tls.key --tls-client-ca ca.crt
  stackd install-agent /run/stackd/agent            put the agent's library there, for other containers

Then: LD_PRELOAD=/path/to/libstackd_agent.so STACKD_DIR=/tmp/stackd your-program, and stackctl ps.)";

constexpr int64_t kMinRingBytes = STACKD_HEADER_BYTES + 16 * STACKD_SLOT_BYTES;
constexpr int64_t kMaxRingBytes = STACKD_HEADER_BYTES + int64_t{STACKD_MAX_SLOTS} * STACKD_SLOT_BYTES;

std::string VersionText() {
  return std::string("stackd ") + kVersion + " (agent ABI " + std::to_string(STACKD_ABI_VERSION) + ")\n";
}

// CLI11 says some mistakes in two lines.
std::string OneSentence(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

CLI::Validator Size(int64_t* bytes) {
  return CLI::Validator(
      [bytes](std::string& text) {
        Result<int64_t> parsed = ParseSizeBytes(text);
        if (!parsed) return parsed.error().message;
        *bytes = *parsed;
        return std::string();
      },
      "SIZE");
}

CLI::Validator Duration(int64_t* seconds) {
  return CLI::Validator(
      [seconds](std::string& text) {
        Result<int64_t> parsed = ParseDurationMs(text);
        if (!parsed) return parsed.error().message;
        *seconds = *parsed / 1000;
        return std::string();
      },
      "DURATION");
}

std::expected<Config, ConfigExit> Mistake(const std::string& sentence) {
  return std::unexpected(ConfigExit{2, "stackd: " + OneSentence(sentence) + " (see stackd --help)\n"});
}

}  // namespace

std::expected<Config, ConfigExit> ParseConfig(int argc, const char* const* argv) {
  Config config;
  std::string max_bytes = "256MiB", max_age = "30d", ring = "1MiB";
  int64_t ring_bytes = config.ring_bytes;
  const std::map<std::string, LogFormat> formats{
      {"auto", LogFormat::kAuto}, {"json", LogFormat::kJson}, {"text", LogFormat::kText}};
  const std::map<std::string, LogLevel> levels{
      {"debug", LogLevel::kDebug}, {"info", LogLevel::kInfo}, {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}};

  CLI::App app{kDescription, "stackd"};
  app.get_formatter()->column_width(34);
  app.set_version_flag("--version", VersionText(), "Print the version and exit");
  app.add_option("--dir", config.dir, "Folder of the sockets, shared with the watched processes")
      ->envname("STACKD_DIR")
      ->capture_default_str();
  app.add_option("--listen", config.listen,
                 "Address and port for gRPC over TCP; other than loopback only with --tls-...; \"none\": Unix socket only")
      ->envname("STACKD_LISTEN")
      ->capture_default_str();
  app.add_option("--tls-cert", config.tls_cert, "Certificate chain that --listen shows, PEM; read again when it changes")
      ->envname("STACKD_TLS_CERT");
  app.add_option("--tls-key", config.tls_key, "Private key of --tls-cert")->envname("STACKD_TLS_KEY");
  app.add_option("--tls-client-ca", config.tls_client_ca, "Authorities whose client certificates are accepted, PEM")
      ->envname("STACKD_TLS_CLIENT_CA");
  app.add_option("--access", config.access, "File that says which callers may read, dump and administer")
      ->envname("STACKD_ACCESS");
  app.add_option("--health-listen", config.health_listen,
                 "Address and port of /livez, /readyz and /process/NAME for probes, over plain HTTP, open to all; like "
                 ":7444 [none]")
      ->envname("STACKD_HEALTH_LISTEN");
  app.add_option("--metrics-listen", config.metrics_listen,
                 "Address and port of /metrics for Prometheus, HTTP, open to all; like :7445 [none]")
      ->envname("STACKD_METRICS_LISTEN");
  app.add_option(
         "--web-listen", config.web_listen,
         "Address and port of the page for browsers, and of the API as JSON over HTTP; other than loopback only with "
         "--tls-...; like 127.0.0.1:7446 [none]")
      ->envname("STACKD_WEB_LISTEN");
  app.add_option("--web-host", config.web_hosts,
                 "Name by which a proxy serves the page, like stackd.ops.example; may be given more than once")
      ->envname("STACKD_WEB_HOST");
  app.add_option(
         "--otlp-endpoint", config.otlp_endpoint,
         "OpenTelemetry collector that crashes and hangs are sent to by OTLP/gRPC; like http://localhost:4317 [none]")
      ->envname("STACKD_OTLP_ENDPOINT");
  app.add_option("--otlp-ca", config.otlp_ca, "Certificates that an https collector is checked against [the system's]")
      ->envname("STACKD_OTLP_CA");
  app.add_option("--otlp-dumps", config.otlp_dumps,
                 "Of equal crashes and of equal hangs, the first N dumps are sent there whole; 0: none")
      ->envname("STACKD_OTLP_DUMPS")
      ->check(CLI::Range(int64_t{0}, int64_t{100}))
      ->capture_default_str();
  app.add_option("--pod-info", config.pod_info, "Folder with the pod's labels and annotations, of the downward API")
      ->envname("STACKD_POD_INFO")
      ->capture_default_str();
  app.add_option("--store", config.store, "File of the stored dumps, or :memory: [DIR/store.db]")->envname("STACKD_STORE");
  app.add_option("--store-max-bytes", max_bytes, "The oldest dumps go when the store is larger")
      ->envname("STACKD_STORE_MAX_BYTES")
      ->check(Size(&config.store_max_bytes))
      ->capture_default_str();
  app.add_option("--store-max-dumps", config.store_max_dumps, "The oldest dumps go when there are more")
      ->envname("STACKD_STORE_MAX_DUMPS")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--store-max-age", max_age, "Dumps go when they are older")
      ->envname("STACKD_STORE_MAX_AGE")
      ->check(Duration(&config.store_max_age_seconds))
      ->capture_default_str();
  app.add_option("--store-crashes-per-group", config.store_crashes_per_group,
                 "Of equal crashes, the first N and the last N keep their dumps; all are counted")
      ->envname("STACKD_STORE_CRASHES_PER_GROUP")
      ->check(CLI::Range(int64_t{1}, int64_t{500}))
      ->capture_default_str();
  app.add_option("--ring-bytes", ring, "Shared memory per watched process")
      ->envname("STACKD_RING_BYTES")
      ->check(Size(&ring_bytes))
      ->capture_default_str();
  app.add_option("--max-processes", config.max_processes, "More processes than this are refused")
      ->envname("STACKD_MAX_PROCESSES")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  app.add_option("--debug-dir", config.debug_dirs, "Folder with separate debug files; may be given more than once")
      ->envname("STACKD_DEBUG_DIR")
      ->capture_default_str();
  app.add_option("--on-dump", config.on_dump, "Program to run for each stored dump; its argument is the dump's name")
      ->envname("STACKD_ON_DUMP");
  bool no_hang_detection = false;
  app.add_option("--rules", config.rules, "File that says which hangs are noticed and what is done then")
      ->envname("STACKD_RULES");
  app.add_flag("--no-hang-detection", no_hang_detection, "Notice no hangs: dumps on request and of crashes only")
      ->envname("STACKD_NO_HANG_DETECTION");
  app.add_option("--log-format", config.log_format, "auto, json or text; auto is text on a terminal")
      ->envname("STACKD_LOG_FORMAT")
      ->transform(CLI::CheckedTransformer(formats).description(""));
  app.add_option("--log-level", config.log_level, "debug, info, warning or error")
      ->envname("STACKD_LOG_LEVEL")
      ->transform(CLI::CheckedTransformer(levels).description(""));
  app.footer("Each option but --help and --version is also read from the environment: --log-level from STACKD_LOG_LEVEL.");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return std::unexpected(ConfigExit{0, app.help()});
  } catch (const CLI::CallForVersion&) {
    return std::unexpected(ConfigExit{0, VersionText()});
  } catch (const CLI::ParseError& error) {
    return Mistake(error.what());
  }
  if (config.dir.empty()) return Mistake("--dir must not be empty");
  const int tls_files = !config.tls_cert.empty() + !config.tls_key.empty() + !config.tls_client_ca.empty();
  if (tls_files != 0 && tls_files != 3) {
    return Mistake("--tls-cert, --tls-key and --tls-client-ca go together: callers must show a certificate, too");
  }
  for (std::string* none :
       {&config.listen, &config.web_listen, &config.health_listen, &config.metrics_listen, &config.otlp_endpoint}) {
    if (*none == "none") none->clear();
  }
  if (tls_files != 0 && config.listen.empty() && config.web_listen.empty()) {
    return Mistake("--tls-cert needs --listen or --web-listen: there is no TLS on a Unix socket");
  }
  if (!config.web_hosts.empty() && config.web_listen.empty()) {
    return Mistake("--web-host needs --web-listen: without it there is no page");
  }
  if (config.otlp_dumps > 0 && config.otlp_endpoint.empty()) {
    return Mistake("--otlp-dumps needs --otlp-endpoint, which says where dumps are sent");
  }
  if (ring_bytes < kMinRingBytes || ring_bytes > kMaxRingBytes) {
    return Mistake("--ring-bytes must be between " + std::to_string(kMinRingBytes) + " and " +
                   std::to_string(kMaxRingBytes) + ", not " + ring);
  }
  if (no_hang_detection && !config.rules.empty()) {
    return Mistake("--rules and --no-hang-detection exclude each other: leave the hangs out of the rules");
  }
  config.hang_detection = !no_hang_detection;
  config.ring_bytes = static_cast<uint32_t>(ring_bytes);
  if (config.store.empty()) config.store = config.dir + "/store.db";
  return config;
}

}  // namespace stackd

// What the daemon was told by flags and environment; a flag wins over its variable.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "daemon/log/log.h"

namespace stackd {

struct Config {
  std::string dir = "/run/stackd";
  std::string listen = "127.0.0.1:7443";  // empty: no TCP
  // All three or none; with them TCP is TLS, and callers show a certificate.
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  std::string access;          // a file that says who may do what; empty: the built-in roles
  std::string health_listen;   // for probes; empty: not there
  std::string metrics_listen;  // for a scraper; empty: not there
  std::string web_listen;      // of the page and the API as JSON; empty: not there
  std::vector<std::string> web_hosts;
  std::string otlp_endpoint;  // of a collector; empty: nothing is sent
  std::string otlp_ca;        // a file; empty: the system's
  int64_t otlp_dumps = 0;     // of each fingerprint, sent whole
  std::string pod_info = "/etc/podinfo";
  std::string store;  // a file, or ":memory:"
  int64_t store_max_bytes = 256ll << 20;
  int64_t store_max_dumps = 10'000;
  int64_t store_max_age_seconds = 30ll * 86400;
  int64_t store_crashes_per_group = 5;
  uint32_t ring_bytes = 1u << 20;
  uint32_t max_processes = 1024;
  std::string on_dump;  // a program; empty: none
  bool hang_detection = true;
  std::string rules;  // a file; empty: the built-in rules
  std::vector<std::string> debug_dirs = {"/usr/lib/debug"};
  LogFormat log_format = LogFormat::kAuto;
  LogLevel log_level = LogLevel::kInfo;
};

// The program ends here: after --help, --version, or a mistake.
struct ConfigExit {
  int exit_code;     // 0, or 2 for a mistake
  std::string text;  // for stdout if exit_code is 0, else one sentence for stderr
};

std::expected<Config, ConfigExit> ParseConfig(int argc, const char* const* argv);

}  // namespace stackd

// "https://collector.observability:4317", as OTEL_EXPORTER_OTLP_ENDPOINT has it for gRPC.
#pragma once

#include <map>
#include <string>

#include "daemon/base/result.h"

namespace stackd {

struct Endpoint {
  std::string target;  // for gRPC: "collector.observability:4317"
  bool has_tls = false;
};

// http is plain text, https is TLS; without a port it is 4317. Fails with one sentence that says what to change.
Result<Endpoint> ParseEndpoint(const std::string& url);

// By name, in lower case.
using Headers = std::multimap<std::string, std::string>;

// Parses OTEL_EXPORTER_OTLP_HEADERS: "key=value,key=value", percent-encoded. Fails with one sentence without any value.
Result<Headers> ParseHeaders(const std::string& text);

}  // namespace stackd

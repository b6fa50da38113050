#include "daemon/otlp/endpoint.h"

#include <grpcpp/support/status.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "daemon/base/printable.h"
#include "daemon/resource/attributes.h"

namespace stackd {
namespace {

constexpr std::string_view kDefaultPort = ":4317";
// What servers take, all headers together.
constexpr size_t kMaxHeaderBytes = 8 << 10;

bool IsPort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port != 0;
}

bool IsHost(std::string_view host) {
  // A bracketed IPv6 address, a name or an IPv4 address.
  const bool has_brackets = host.starts_with('[') && host.ends_with(']');
  return !host.empty() && std::ranges::all_of(host, [&](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || (has_brackets && (c == ':' || c == '[' || c == ']'));
  });
}

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// What gRPC lets a program send as text: the rest is its own, or would end the process.
bool IsHeaderName(const std::string& key) {
  const std::string lower = Lower(key);
  const bool is_reserved = lower.starts_with("grpc-") || lower.ends_with("-bin");
  return !key.empty() && !is_reserved && std::ranges::all_of(lower, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

bool IsHeaderValue(const std::string& value) {
  return !value.empty() && std::ranges::all_of(value, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

Result<Endpoint> ParseEndpoint(const std::string& url) {
  const auto not_understood = [&] {
    return Error(Code::kInvalidArgument, "--otlp-endpoint \"" + url +
                                             "\" is not understood: write it like http://localhost:4317 or "
                                             "https://collector.example:4317");
  };
  Endpoint endpoint;
  std::string_view rest = url;
  for (const auto& [scheme, has_tls] : {std::pair{"http://", false}, std::pair{"https://", true}}) {
    if (!rest.starts_with(scheme)) continue;
    rest.remove_prefix(std::string_view(scheme).size());
    endpoint.has_tls = has_tls;
    break;
  }
  if (rest.size() == url.size()) return not_understood();
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != std::string_view::npos && !rest.ends_with(']');
  const std::string_view host = rest.substr(0, has_port ? colon : rest.size());
  if (!IsHost(host) || (has_port && !IsPort(rest.substr(colon + 1)))) return not_understood();
  endpoint.target = std::string(rest) + std::string(has_port ? "" : kDefaultPort);
  return endpoint;
}

Result<Headers> ParseHeaders(const std::string& text) {
  const auto fault = [](const std::string& what) {
    return Error(Code::kInvalidArgument, "OTEL_EXPORTER_OTLP_HEADERS " + what);
  };
  if (text.size() > kMaxHeaderBytes) return fault("has more than 8 KiB, which collectors do not take");
  const auto pairs = ParseKeyValuePairs(text);
  if (!pairs) return fault("is not understood: write it like key=value,key=value, with %20 for a space");
  Headers headers;
  for (const auto& [key, value] : *pairs) {
    if (!IsHeaderName(key)) return fault("has a key that is no header of gRPC: \"" + PrintableText(key) + "\"");
    // Never the value: it may be a password.
    if (!IsHeaderValue(value)) return fault("has a value for \"" + key + "\" that is not printable ASCII");
    headers.emplace(Lower(key), value);
  }
  return headers;
}

}  // namespace stackd

#include "daemon/serve/web/browser_check.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string_view>

namespace stackd {
namespace {

// Longer ones are not shown whole in a refusal.
constexpr size_t kShownBytes = 128;

// "localhost:7446" is "localhost"; "[::1]:7446" is "::1".
std::string_view WithoutPort(std::string_view authority) {
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    return end == std::string_view::npos ? "" : authority.substr(1, end - 1);
  }
  return authority.substr(0, authority.find(':'));
}

bool IsAddress(std::string_view host) {
  const std::string text(host);
  char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 || inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

std::string Shown(std::string_view text) {
  std::string shown(text.substr(0, kShownBytes));
  std::replace_if(shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return "\"" + shown + "\"";
}

}  // namespace

bool BrowserCheck::Knows(std::string_view host) const {
  return host == "localhost" || IsAddress(host) || std::find(hosts.begin(), hosts.end(), host) != hosts.end();
}

std::string BrowserCheck::Refuses(const HttpRequest& request) const {
  const std::string_view host = request.Field("host");
  if (!Knows(WithoutPort(host))) {
    return "the host " + Shown(host) + " is not known here: call localhost or an address, or give the name by --web-host";
  }
  const std::string_view site = request.Field("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none") {
    return "a page of another site may not call this";
  }
  const std::string_view origin = request.Field("origin");
  if (origin.empty()) return "";
  const size_t scheme = origin.find("://");
  const std::string_view authority = scheme == std::string_view::npos ? "" : origin.substr(scheme + 3);
  const bool is_proxied = std::find(hosts.begin(), hosts.end(), WithoutPort(authority)) != hosts.end();
  if (!authority.empty() && (authority == host || is_proxied)) return "";
  return "the page that called is of " + Shown(origin) + ", not of " + Shown(host) +
         ": behind a proxy, give the name by --web-host";
}

}  // namespace stackd

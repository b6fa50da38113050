// Pages that are read with GET: for scrapers, probes and browsers.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "daemon/http/http_server.h"

namespace stackd {

struct HttpPage {
  std::string content_type;
  // Called on the server's thread. `rest` is what follows the path of a page that ends with "/", decoded; else "".
  std::function<HttpAnswer(const std::string& rest)> answer;
};

// By path: "/metrics", or "/process/" for all below it.
using HttpPages = std::map<std::string, HttpPage, std::less<>>;

// Answers GET and HEAD of a page; anything else is refused in one sentence.
HttpAnswer AnswerPage(const HttpPages& pages, const HttpRequest& request);

// Serves nothing but pages.
HttpHandler ServePages(HttpPages pages);

}  // namespace stackd

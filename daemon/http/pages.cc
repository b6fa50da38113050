#include "daemon/http/pages.h"

#include <string_view>
#include <utility>

namespace stackd {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";

}  // namespace

HttpAnswer AnswerPage(const HttpPages& pages, const HttpRequest& request) {
  const std::string_view path = request.Path();
  auto page = pages.find(path);
  std::string rest;
  if (const size_t end = path.find('/', 1); page == pages.end() && end != std::string_view::npos) {
    page = pages.find(path.substr(0, end + 1));
    rest = DecodePercent(path.substr(end + 1));
  }
  if (page == pages.end()) return {404, "there is no such page\n", {{"Content-Type", kText}}};
  if (request.method != "GET" && request.method != "HEAD") {
    return {405, "only GET and HEAD are served\n", {{"Content-Type", kText}, {"Allow", "GET, HEAD"}}};
  }
  HttpAnswer answer = page->second.answer(rest);
  answer.fields.emplace_back("Content-Type", page->second.content_type);
  return answer;
}

HttpHandler ServePages(HttpPages pages) {
  return [pages = std::move(pages)](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    reply->Send(AnswerPage(pages, request), nullptr);
  };
}

}  // namespace stackd

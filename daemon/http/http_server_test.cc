#include "daemon/http/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/http/pages.h"

namespace stackd {
namespace {

constexpr int kPatienceMs = 10'000;

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpOptions options, HttpPages pages = {}, in_addr host = {htonl(INADDR_LOOPBACK)}) {
    Fd listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr = host;
    socklen_t size_bytes = sizeof(address_);
    ASSERT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&address_), size_bytes), 0);
    ASSERT_EQ(listen(listening.get(), 64), 0);
    getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address_), &size_bytes);
    pages["/page"] = {"text/x-page", [](const std::string&) { return HttpAnswer{200, "hello\n"}; }};
    if (!options.handler) options.handler = ServePages(std::move(pages));
    options.counters = &counters_;
    auto started = HttpServer::Start(std::move(listening), std::move(options));
    ASSERT_TRUE(started) << started.error().message;
    server_ = std::move(*started);
  }

  Fd Connect() {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address_), sizeof(address_)), 0);
    return fd;
  }

  // What comes until the other end closes; "silence" if it does not.
  std::string ReadAll(const Fd& fd) {
    std::string text;
    for (pollfd ready{fd.get(), POLLIN, 0}; poll(&ready, 1, kPatienceMs) == 1;) {
      char bytes[4096];
      const ssize_t got = read(fd.get(), bytes, sizeof(bytes));
      if (got <= 0) return text;
      text.append(bytes, static_cast<size_t>(got));
    }
    return "silence";
  }

  std::string Ask(const std::string& request) {
    const Fd fd = Connect();
    EXPECT_EQ(write(fd.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
    return ReadAll(fd);
  }

  std::string StatusOf(const std::string& request) { return Ask(request).substr(0, 12); }

  sockaddr_in address_{};
  HttpCounters counters_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, APageIsServed) {
  Start({});
  const std::string answer = Ask("GET /page HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_NE(answer.find("Content-Type: text/x-page\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nhello\n")) << answer;
  EXPECT_EQ(StatusOf("GET /page?x=1 HTTP/1.0\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(counters_.requests, 2);
}

TEST_F(HttpServerTest, WhatIsNoGetOfAPageIsRefused) {
  Start({});
  EXPECT_EQ(StatusOf("GET /other HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
  EXPECT_EQ(StatusOf("POST /page HTTP/1.1\r\n\r\n"), "HTTP/1.1 405");
  EXPECT_EQ(StatusOf("nonsense\r\n\r\n"), "HTTP/1.1 400");
  EXPECT_EQ(StatusOf(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(64, '\r') + "\n\n"),
            "HTTP/1.1 400")
      << "a client that speaks TLS";
}

TEST_F(HttpServerTest, ABodyIsNotReadAndDoesNotMatter) {
  Start({});
  EXPECT_EQ(StatusOf("POST /page HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), "HTTP/1.1 405");
  EXPECT_EQ(StatusOf("POST /page HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "HTTP/1.1 405");
  EXPECT_EQ(StatusOf("GET /page HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), "HTTP/1.1 200");
  EXPECT_EQ(StatusOf("POST /page HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\nhello"), "HTTP/1.1 405");
}

TEST_F(HttpServerTest, AHeaderHasABoundedSize) {
  Start({});
  EXPECT_EQ(StatusOf("GET /page HTTP/1.1\r\nX: " + std::string(7000, 'x') + "\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(StatusOf("GET /page HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n"), "HTTP/1.1 400");
}

TEST_F(HttpServerTest, ARequestThatDoesNotComeWholeInTimeIsGivenUp) {
  Start({.request_timeout_ms = 200});
  const Fd silent = Connect(), slow = Connect();
  const int64_t begin_ns = MonotonicNs();
  // A byte now and then gains it no time.
  while (MonotonicNs() - begin_ns < 3 * kNsPerSecond) {
    if (send(slow.get(), "G", 1, MSG_NOSIGNAL) != 1) break;
    pollfd closed{slow.get(), POLLIN, 0};
    if (poll(&closed, 1, 20) == 1) break;
  }
  EXPECT_LT(MonotonicNs() - begin_ns, 2 * kNsPerSecond);
  EXPECT_EQ(ReadAll(silent), "");
}

TEST_F(HttpServerTest, PagesBelowAPathGetTheRestOfIt) {
  HttpPages pages;
  pages["/below/"] = {"text/plain", [](const std::string& rest) { return HttpAnswer{503, "<" + rest + ">"}; }};
  Start({}, std::move(pages));
  const std::string answer = Ask("GET /below/a%20b%2fc%zz?x=1 HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
  EXPECT_TRUE(answer.ends_with("<a b/c%zz>")) << answer;
  EXPECT_EQ(StatusOf("GET /below HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
}

TEST_F(HttpServerTest, HeadIsAnsweredWithoutTheBody) {
  Start({});
  const std::string answer = Ask("HEAD /page HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_NE(answer.find("Content-Length: 6\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(HttpServerTest, IdleConnectionsMakeRoomForAnother) {
  Start({.max_connections = 4, .request_timeout_ms = 60'000});
  std::vector<Fd> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(Connect());
  EXPECT_EQ(StatusOf("GET /page HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(counters_.displaced, 1);
  EXPECT_EQ(ReadAll(idle[0]), "") << "the oldest has gone";
  const std::string request = "GET /page HTTP/1.1\r\n\r\n";
  ASSERT_EQ(write(idle[3].get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  EXPECT_TRUE(ReadAll(idle[3]).starts_with("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, AnAnswerThatNobodyReadsIsGivenUp) {
  HttpPages pages;
  pages["/large"] = {"text/plain", [](const std::string&) { return HttpAnswer{200, std::string(32 << 20, 'x')}; }};
  Start({.max_connections = 1, .answer_timeout_ms = 300}, std::move(pages));
  const Fd fd = Connect();
  const std::string request = "GET /large HTTP/1.1\r\n\r\n";
  ASSERT_EQ(write(fd.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  const int64_t begin_ns = MonotonicNs();
  std::string status;
  while (status != "HTTP/1.1 200" && MonotonicNs() - begin_ns < 5 * kNsPerSecond) {
    status = StatusOf("GET /page HTTP/1.1\r\n\r\n");
  }
  EXPECT_EQ(status, "HTTP/1.1 200") << "its place is free again";
}

// Answers on another thread, in pieces, as long as the client is there.
class Pieces {
 public:
  void Serve(const std::shared_ptr<HttpReply>& reply) {
    reply->Begin(
        {200, "", {{"Content-Type", "text/plain"}}}, [this] { gone_.set_value(); },
        [this, reply](bool ok) { Next(reply, ok ? 3 : 0); });
  }
  // Whether the client has gone, of which this hears in either order: that it goes, and that no more can be written.
  bool IsGone() { return IsSet(&gone_) && IsSet(&all_written_); }
  bool ends_ = true;

 private:
  static bool IsSet(std::promise<void>* promise) {
    return promise->get_future().wait_for(std::chrono::milliseconds(kPatienceMs)) == std::future_status::ready;
  }
  void Next(const std::shared_ptr<HttpReply>& reply, int left) {
    if (left > 0)
      return reply->Write("piece" + std::to_string(left), [=, this](bool ok) { Next(reply, ok ? left - 1 : 0); });
    if (ends_) return reply->End();
    open_ = reply;
    all_written_.set_value();
  }

  std::promise<void> gone_, all_written_;
  std::shared_ptr<HttpReply> open_;
};

TEST_F(HttpServerTest, AnAnswerComesInPieces) {
  Pieces pieces;
  Start({.handler = [&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) { pieces.Serve(reply); }});
  const std::string answer = Ask("GET / HTTP/1.1\r\n\r\n");
  EXPECT_NE(answer.find("Transfer-Encoding: chunked\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n6\r\npiece3\r\n6\r\npiece2\r\n6\r\npiece1\r\n0\r\n\r\n")) << answer;
}

TEST_F(HttpServerTest, TheHandlerIsToldOfAClientThatGoesBeforeTheEnd) {
  Pieces pieces;
  pieces.ends_ = false;
  Start({.handler = [&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) { pieces.Serve(reply); }});
  {
    const Fd fd = Connect();
    const std::string request = "GET / HTTP/1.1\r\n\r\n";
    ASSERT_EQ(write(fd.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char first = 0;
    ASSERT_EQ(read(fd.get(), &first, 1), 1);
  }
  EXPECT_TRUE(pieces.IsGone());
}

TEST_F(HttpServerTest, ABodyIsReadUpToItsLimit) {
  const auto echo = [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    reply->Send({200, request.method + " " + std::string(request.Field("x-name")) + " " + request.body}, nullptr);
  };
  Start({.handler = echo, .max_body_bytes = 10});
  EXPECT_TRUE(Ask("POST / HTTP/1.1\r\nX-Name: me\r\nContent-Length: 10\r\n\r\n0123456789").ends_with("POST me 0123456789"));
  EXPECT_TRUE(Ask("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").ends_with("POST  abc"));
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n0123456789x"), "HTTP/1.1 413");
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789x\r\n0\r\n\r\n"), "HTTP/1.1 413");
}

TEST_F(HttpServerTest, ARequestAtWorkIsNotDisplaced) {
  std::promise<std::shared_ptr<HttpReply>> at_work;
  Start({.handler = [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) { at_work.set_value(std::move(reply)); },
         .max_connections = 1});
  const Fd fd = Connect();
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(write(fd.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  const std::shared_ptr<HttpReply> reply = at_work.get_future().get();
  EXPECT_EQ(Ask(request), "") << "there is no room";
  reply->Send({200, "done"}, nullptr);
  EXPECT_TRUE(ReadAll(fd).ends_with("done"));
}

// An address of this machine that is not loopback's.
std::optional<in_addr> OutsideAddress() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return std::nullopt;
  std::optional<in_addr> found;
  for (const ifaddrs* one = all; one != nullptr && !found; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const in_addr address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    if ((ntohl(address.s_addr) >> 24) != IN_LOOPBACKNET) found = address;
  }
  freeifaddrs(all);
  return found;
}

TEST_F(HttpServerTest, AHostHasItsShareOfTheConnections) {
  const auto host = OutsideAddress();
  if (!host) GTEST_SKIP() << "no address but loopback's";
  std::vector<std::shared_ptr<HttpReply>> at_work;
  Start({.handler = [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) { at_work.push_back(std::move(reply)); },
         .max_connections = 8,
         .max_connections_of_one = 2},
        {}, *host);
  const Fd one = Connect(), two = Connect();
  EXPECT_EQ(ReadAll(Connect()), "");
  EXPECT_EQ(counters_.refused, 1);
  server_.reset();
}

TEST_F(HttpServerTest, AHostThatMakesTooManyConnectionsIsRefused) {
  const auto host = OutsideAddress();
  if (!host) GTEST_SKIP() << "no address but loopback's";
  Start({.connections_per_second = 1e-3, .burst_of_connections = 2}, {}, *host);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(StatusOf("GET /page HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(ReadAll(Connect()), "");
  EXPECT_EQ(counters_.refused, 1);
}

TEST_F(HttpServerTest, LoopbackMayMakeAndHaveAllConnections) {
  Start({.max_connections = 8, .max_connections_of_one = 2, .connections_per_second = 1e-3, .burst_of_connections = 2});
  std::vector<Fd> idle;
  for (int i = 0; i < 7; ++i) idle.push_back(Connect());
  EXPECT_EQ(StatusOf("GET /page HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(counters_.refused + counters_.displaced, 0);
}

TEST_F(HttpServerTest, ADrainWaitsForWhatIsAtWorkAndAcceptsNothingMore) {
  std::promise<std::shared_ptr<HttpReply>> at_work;
  Start({.handler = [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) { at_work.set_value(std::move(reply)); }});
  const Fd idle = Connect(), fd = Connect();
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(write(fd.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::shared_ptr<HttpReply> reply = at_work.get_future().get();
  std::future<void> drained =
      std::async(std::launch::async, [&] { server_->Drain(MonotonicNs() + kPatienceMs * kNsPerMs); });
  EXPECT_EQ(ReadAll(idle), "");
  const Fd late(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(connect(late.get(), reinterpret_cast<sockaddr*>(&address_), sizeof(address_)), 0);
  EXPECT_EQ(drained.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  reply->Send({200, "done"}, nullptr);
  reply.reset();
  EXPECT_TRUE(ReadAll(fd).ends_with("done"));
  EXPECT_EQ(drained.wait_for(std::chrono::milliseconds(kPatienceMs / 2)), std::future_status::ready);
}

TEST_F(HttpServerTest, ADrainEndsAtItsDeadline) {
  std::promise<std::shared_ptr<HttpReply>> at_work;
  Start({.handler = [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) { at_work.set_value(std::move(reply)); }});
  const Fd fd = Connect();
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(write(fd.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::shared_ptr<HttpReply> reply = at_work.get_future().get();
  server_->Drain(MonotonicNs() + 50 * kNsPerMs);
  reply.reset();
  server_.reset();
  EXPECT_EQ(ReadAll(fd), "");
}

TEST_F(HttpServerTest, AReplyThatIsDroppedClosesTheConnection) {
  Start({.handler = [](const HttpRequest&, const std::shared_ptr<HttpReply>&) {}});
  EXPECT_EQ(Ask("GET / HTTP/1.1\r\n\r\n"), "");
}

TEST_F(HttpServerTest, ItEndsWhileConnectionsAreOpen) {
  Start({});
  const Fd idle = Connect();
  server_.reset();
  EXPECT_EQ(ReadAll(idle), "");
}

}  // namespace
}  // namespace stackd

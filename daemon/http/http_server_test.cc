#include "daemon/metrics/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr int kPatienceMs = 10'000;

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpOptions options) {
    Fd listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size_bytes = sizeof(address_);
    ASSERT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&address_), size_bytes), 0);
    ASSERT_EQ(listen(listening.get(), 64), 0);
    getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address_), &size_bytes);
    options.pages["/page"] = {"text/x-page", [](const std::string&) { return HttpAnswer{200, "hello\n"}; }};
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
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, APageIsServed) {
  Start({});
  const std::string answer = Ask("GET /page HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_NE(answer.find("Content-Type: text/x-page\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nhello\n")) << answer;
  EXPECT_EQ(StatusOf("GET /page?x=1 HTTP/1.0\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(server_->requests(), 2);
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
  Start({.pages = {}, .timeout_ms = 200});
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
  HttpOptions options;
  options.pages["/below/"] = {"text/plain", [](const std::string& rest) { return HttpAnswer{503, "<" + rest + ">"}; }};
  Start(std::move(options));
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
  Start({.pages = {}, .max_connections = 4, .timeout_ms = 60'000});
  std::vector<Fd> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(Connect());
  EXPECT_EQ(StatusOf("GET /page HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(server_->displaced_connections(), 1);
  EXPECT_EQ(ReadAll(idle[0]), "") << "the oldest has gone";
  const std::string request = "GET /page HTTP/1.1\r\n\r\n";
  ASSERT_EQ(write(idle[3].get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  EXPECT_TRUE(ReadAll(idle[3]).starts_with("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, AnAnswerThatNobodyReadsIsGivenUp) {
  HttpOptions options{.pages = {}, .max_connections = 1, .timeout_ms = 300};
  options.pages["/large"] = {"text/plain", [](const std::string&) { return HttpAnswer{200, std::string(32 << 20, 'x')}; }};
  Start(std::move(options));
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

TEST_F(HttpServerTest, ItEndsWhileConnectionsAreOpen) {
  Start({});
  const Fd idle = Connect();
  server_.reset();
  EXPECT_EQ(ReadAll(idle), "");
}

}  // namespace
}  // namespace stackd

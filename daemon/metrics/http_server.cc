#include "daemon/metrics/http_server.h"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

namespace stackd {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Response = http::response<http::string_body>;
using Request = http::request<http::empty_body>;

// What a scraper sends has some hundred.
constexpr uint32_t kMaxHeaderBytes = 8 << 10;
// Without fds to accept with, so long until the next try.
constexpr auto kRest = std::chrono::milliseconds(100);
constexpr char kText[] = "text/plain; charset=utf-8";

Response MakeResponse(http::status status, const std::string& type, std::string body) {
  Response response{status, 11};
  response.set(http::field::content_type, type);
  response.keep_alive(false);
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

}  // namespace

struct HttpServer::State {
  explicit State(HttpOptions server_options) : options(std::move(server_options)) {}
  ~State() {
    io.stop();
    if (thread.joinable()) thread.join();
  }

  class Connection;

  void Accept();
  Response Answer(const Request& request);

  const HttpOptions options;
  size_t connections = 0;  // of the thread
  asio::io_context io{1};
  asio::ip::tcp::acceptor acceptor{io};
  asio::steady_timer rest{io};
  std::atomic<int64_t> requests{0}, refused{0};
  std::thread thread;
};

// One request and its answer. Kept alive by the operation that runs.
class HttpServer::State::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(State* state, asio::ip::tcp::socket socket) : state_(state), stream_(std::move(socket)) {
    ++state_->connections;
    parser_.header_limit(kMaxHeaderBytes);
    // None is read. (In 1.74 boost::none, meant for any, stands for none.)
    parser_.body_limit(std::numeric_limits<uint64_t>::max());
  }
  ~Connection() { --state_->connections; }

  void Start() {
    // For all of it: a byte now and then gains no time.
    stream_.expires_after(std::chrono::milliseconds(state_->options.timeout_ms));
    http::async_read_header(stream_, buffer_, parser_,
                            [self = shared_from_this()](error_code error, size_t) { self->OnRead(error); });
  }

 private:
  void OnRead(error_code error) {
    // Gone, or too slow. Whoever spoke nonsense is told.
    const bool is_nonsense = error.category() == make_error_code(http::error::end_of_stream).category();
    if (error && (!is_nonsense || error == http::error::end_of_stream)) return;
    response_ =
        error ? MakeResponse(http::status::bad_request, kText, "this is no GET request\n") : state_->Answer(parser_.get());
    stream_.expires_after(std::chrono::milliseconds(state_->options.timeout_ms));
    http::async_write(stream_, response_, [self = shared_from_this()](error_code failed, size_t) {
      error_code ignored;
      if (!failed) self->stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    });
  }

  State* const state_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{kMaxHeaderBytes};
  http::request_parser<http::empty_body> parser_;
  Response response_;
};

void HttpServer::State::Accept() {
  acceptor.async_accept([this](error_code error, asio::ip::tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {
      rest.expires_after(kRest);
      rest.async_wait([this](error_code stopped) {
        if (!stopped) Accept();
      });
      return;
    }
    if (connections < options.max_connections) {
      std::make_shared<Connection>(this, std::move(socket))->Start();
    } else {
      ++refused;
    }
    Accept();
  });
}

Response HttpServer::State::Answer(const Request& request) {
  ++requests;
  const std::string target(request.target());
  const auto page = options.pages.find(target.substr(0, target.find('?')));
  if (page == options.pages.end()) return MakeResponse(http::status::not_found, kText, "there is no such page\n");
  if (request.method() != http::verb::get) {
    Response response = MakeResponse(http::status::method_not_allowed, kText, "only GET is served\n");
    response.set(http::field::allow, "GET");
    return response;
  }
  return MakeResponse(http::status::ok, page->second.content_type, page->second.body());
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::Start(Fd listening, HttpOptions options) {
  auto state = std::make_unique<State>(std::move(options));
  error_code error;
  sockaddr address{};
  socklen_t size_bytes = sizeof(address);
  getsockname(listening.get(), &address, &size_bytes);
  const auto protocol = address.sa_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4();
  state->acceptor.assign(protocol, listening.get(), error);
  if (error) return Error(Code::kUnavailable, "cannot serve HTTP: " + error.message());
  listening.Release();
  state->Accept();
  state->thread = std::thread([io = &state->io] { io->run(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

int64_t HttpServer::requests() const { return state_->requests; }
int64_t HttpServer::refused_connections() const { return state_->refused; }

}  // namespace stackd

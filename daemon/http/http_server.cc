#include "daemon/metrics/http_server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <string_view>
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

// "a%20b" is "a b"; what is no number stays as it is.
std::string Decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && text.size() - i > 2 && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

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
  void MakeRoom();
  Response Answer(const Request& request);

  const HttpOptions options;
  std::list<Connection*> connections;  // the oldest first; of the thread
  asio::io_context io{1};
  asio::ip::tcp::acceptor acceptor{io};
  asio::steady_timer rest{io};
  std::atomic<int64_t> requests{0}, displaced{0};
  std::thread thread;
};

// One request and its answer. Kept alive by the operation that runs.
class HttpServer::State::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(State* state, asio::ip::tcp::socket socket) : state_(state), stream_(std::move(socket)) {
    place_ = state_->connections.insert(state_->connections.end(), this);
    error_code ignored;
    host_ = stream_.socket().remote_endpoint(ignored).address();
    parser_.header_limit(kMaxHeaderBytes);
    // None is read. (In 1.74 boost::none, meant for any, stands for none.)
    parser_.body_limit(std::numeric_limits<uint64_t>::max());
  }
  ~Connection() { GiveUpPlace(); }

  const asio::ip::address& host() const { return host_; }

  void Close() {
    GiveUpPlace();
    stream_.close();
  }

  void Start() {
    // For all of it: a byte now and then gains no time.
    stream_.expires_after(std::chrono::milliseconds(state_->options.timeout_ms));
    http::async_read_header(stream_, buffer_, parser_,
                            [self = shared_from_this()](error_code error, size_t) { self->OnRead(error); });
  }

 private:
  void GiveUpPlace() {
    if (has_place_) state_->connections.erase(place_);
    has_place_ = false;
  }

  void OnRead(error_code error) {
    // The client is gone, or too slow. One that sent no HTTP gets an answer.
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
  std::list<Connection*>::iterator place_;
  bool has_place_ = true;
  asio::ip::address host_;
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
    if (connections.size() >= options.max_connections) MakeRoom();
    std::make_shared<Connection>(this, std::move(socket))->Start();
    Accept();
  });
}

// Closes the oldest connection of the host with most. A client with a request sends it before many others connect; a
// connection that still waits is idle, or part of a flood.
void HttpServer::State::MakeRoom() {
  std::map<asio::ip::address, size_t> by_host;
  for (const Connection* connection : connections) ++by_host[connection->host()];
  const auto has_more = [](const auto& one, const auto& other) { return one.second < other.second; };
  const asio::ip::address greediest = std::max_element(by_host.begin(), by_host.end(), has_more)->first;
  const auto is_its = [&](const Connection* connection) { return connection->host() == greediest; };
  (*std::find_if(connections.begin(), connections.end(), is_its))->Close();
  ++displaced;
}

Response HttpServer::State::Answer(const Request& request) {
  ++requests;
  const std::string target(request.target());
  const std::string path = target.substr(0, target.find('?'));
  auto page = options.pages.find(path);
  std::string rest;
  if (const size_t end = path.find('/', 1); page == options.pages.end() && end != std::string::npos) {
    page = options.pages.find(path.substr(0, end + 1));
    rest = Decoded(std::string_view(path).substr(end + 1));
  }
  if (page == options.pages.end()) return MakeResponse(http::status::not_found, kText, "there is no such page\n");
  const bool is_head = request.method() == http::verb::head;
  if (request.method() != http::verb::get && !is_head) {
    Response response = MakeResponse(http::status::method_not_allowed, kText, "only GET and HEAD are served\n");
    response.set(http::field::allow, "GET, HEAD");
    return response;
  }
  HttpAnswer answer = page->second.answer(rest);
  Response response = MakeResponse(http::int_to_status(answer.status), page->second.content_type, std::move(answer.body));
  // Its length stays told.
  if (is_head) response.body().clear();
  return response;
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
int64_t HttpServer::displaced_connections() const { return state_->displaced; }

}  // namespace stackd

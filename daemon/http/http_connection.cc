#include "daemon/http/http_connection.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "daemon/http/server_tls.h"

namespace stackd {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;
using Parser = http::request_parser<http::string_body>;
using Response = http::response<http::string_body>;
using Written = HttpReply::Written;

// Headers of a scraper or a browser have some hundred bytes.
constexpr uint32_t kMaxHeaderBytes = 8 << 10;
constexpr auto kEndOfTls = std::chrono::seconds(1);
// Bodies are read in pieces of this size.
constexpr size_t kMaxBodyPieceBytes = 64 << 10;

std::string Lowered(std::string_view name) {
  std::string lowered(name);
  for (char& c : lowered) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lowered;
}

HttpRequest ToRequest(Parser* parser, HttpPeer peer) {
  auto& message = parser->get();
  HttpRequest request{.method = std::string(message.method_string()),
                      .target = std::string(message.target()),
                      .fields = {},
                      .body = std::move(message.body()),
                      .peer = std::move(peer)};
  for (const auto& field : message) {
    const auto name = field.name_string();
    const auto value = field.value();
    request.fields[Lowered({name.data(), name.size()})] = std::string(value.data(), value.size());
  }
  return request;
}

Response ToResponse(HttpAnswer answer, const HttpFields& fields) {
  Response response{http::int_to_status(answer.status), 11};
  for (const auto& [name, value] : fields) response.set(name, value);
  for (const auto& [name, value] : answer.fields) response.set(name, value);
  response.keep_alive(false);
  response.body() = std::move(answer.body);
  return response;
}

HttpAnswer Refusal(const error_code& error) {
  if (error == http::error::body_limit) return {413, "the body of this request is too large\n", {}};
  return {400, "this is no HTTP request\n", {}};
}

template <typename Stream>
class Connection final : public HttpConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <typename... Arguments>
  Connection(Owner* owner, const Limits& limits, asio::ip::tcp::socket socket, Arguments&... arguments)
      : owner_(owner), limits_(limits), stream_(std::move(socket), arguments...) {
    error_code ignored;
    host_ = tcp().socket().remote_endpoint(ignored).address();
    parser_.header_limit(kMaxHeaderBytes);
    // A body that is left unread has no limit. (In Boost 1.74 boost::none, meant for any, stands for none.)
    parser_.body_limit(limits.body_bytes == 0 ? std::numeric_limits<uint64_t>::max() : limits.body_bytes);
    owner_->Add(this);
  }
  ~Connection() override { Leave(); }

  void Start(std::shared_ptr<asio::ssl::context> context) {
    context_ = std::move(context);
    // One time limit for all of the request: a byte now and then gains no time.
    tcp().expires_after(std::chrono::milliseconds(limits_.request_ms));
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](error_code error) {
        if (!error) return self->ReadHeader();
        if (error.category() != asio::error::get_ssl_category()) return;
        self->owner_->OnFailedHandshake(self->stream_.native_handle(), error.value());
      });
    } else {
      ReadHeader();
    }
  }

  void Close() override {
    Leave();
    tcp().close();
    if (gone_ && !has_ended_) std::exchange(gone_, nullptr)();
  }

 private:
  class Reply;

  PlainStream& tcp() { return beast::get_lowest_layer(stream_); }

  void Leave() {
    if (has_left_) return;
    has_left_ = true;
    owner_->Remove(this);
  }

  void ReadHeader() {
    http::async_read_header(stream_, buffer_, parser_, [self = this->shared_from_this()](error_code error, size_t) {
      if (error || self->limits_.body_bytes == 0) return self->OnRequest(error);
      http::async_read(self->stream_, self->buffer_, self->parser_,
                       [self](error_code failed, size_t) { self->OnRequest(failed); });
    });
  }

  void OnRequest(error_code error) {
    // A client that has gone, or is too slow, is told nothing; one that sent nonsense is.
    const bool is_nonsense = error.category() == make_error_code(http::error::end_of_stream).category();
    if (error && (!is_nonsense || error == http::error::end_of_stream)) return;
    is_idle_ = false;
    tcp().expires_never();
    auto reply = std::make_shared<Reply>(this->shared_from_this(), !error && parser_.get().method() == http::verb::head);
    if (error) return reply->Send(Refusal(error), nullptr);
    owner_->Handle(ToRequest(&parser_, Peer()), std::move(reply));
  }

  HttpPeer Peer() {
    HttpPeer peer;
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      X509* certificate = SSL_get1_peer_certificate(stream_.native_handle());
      peer = PeerOfCertificate(certificate);
      X509_free(certificate);
    }
    peer.is_loopback = host_.is_loopback();
    return peer;
  }

  void ExpectToBeRead() { tcp().expires_after(std::chrono::milliseconds(limits_.answer_ms)); }

  void SendWhole(HttpAnswer answer, bool is_head, std::shared_ptr<void> kept) {
    will_end_ = true;
    response_ = ToResponse(std::move(answer), *limits_.fields);
    response_.prepare_payload();
    // The length of the body that a GET would have had stays.
    if (is_head) response_.body().clear();
    ExpectToBeRead();
    http::async_write(stream_, response_,
                      [self = this->shared_from_this(), kept = std::move(kept)](error_code error, size_t) {
                        if (!error) self->EndConnection();
                      });
  }

  void BeginPieces(HttpAnswer head, std::function<void()> gone, Written written) {
    if (has_left_) return written(false);
    response_ = ToResponse(std::move(head), *limits_.fields);
    response_.chunked(true);
    serializer_.emplace(response_);
    gone_ = std::move(gone);
    ExpectToBeRead();
    http::async_write_header(stream_, *serializer_, AfterPiece(std::move(written)));
    // A client sends nothing after its request: if there is something to read, it is the end.
    tcp().socket().async_wait(asio::socket_base::wait_read, [self = this->shared_from_this()](error_code) {
      if (!self->has_ended_) self->Close();
    });
  }

  void WritePiece(std::string piece, Written written) {
    if (has_left_) return written(false);
    piece_ = std::move(piece);
    ExpectToBeRead();
    asio::async_write(stream_, http::make_chunk(asio::buffer(piece_)), AfterPiece(std::move(written)));
  }

  auto AfterPiece(Written written) {
    return [self = this->shared_from_this(), written = std::move(written)](error_code error, size_t) {
      if (error) self->Close();
      if (!error) self->tcp().expires_never();
      written(!error);
    };
  }

  void EndPieces() {
    will_end_ = true;
    if (has_left_) return;
    ExpectToBeRead();
    asio::async_write(stream_, http::make_chunk_last(), [self = this->shared_from_this()](error_code error, size_t) {
      if (!error) self->EndConnection();
    });
  }

  void EndConnection() {
    has_ended_ = true;
    is_idle_ = true;
    error_code ignored;
    // The wait for the client's end.
    tcp().socket().cancel(ignored);
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      // A client need not say that it has read the end.
      tcp().expires_after(kEndOfTls);
      stream_.async_shutdown([self = this->shared_from_this()](error_code) { self->Close(); });
    } else {
      tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    }
  }

  Owner* const owner_;
  const Limits limits_;
  std::shared_ptr<asio::ssl::context> context_;
  Stream stream_;
  bool has_left_ = false;
  bool will_end_ = false;  // all of the answer is there to be sent
  bool has_ended_ = false;
  beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxBodyPieceBytes};
  Parser parser_;
  Response response_;

  // State of an answer in pieces.
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::string piece_;
  std::function<void()> gone_;
};

// Hands over to the server's thread, which alone uses the connection and destroys it. Its work guard keeps that thread.
template <typename Stream>
class Connection<Stream>::Reply final : public HttpReply {
 public:
  Reply(std::shared_ptr<Connection> connection, bool is_head)
      : connection_(std::move(connection)), is_head_(is_head), guard_(connection_->stream_.get_executor()) {}

  // Closes a connection whose answer is not whole.
  ~Reply() override {
    asio::post(guard_.get_executor(), [connection = std::move(connection_)] {
      if (!connection->will_end_) connection->Close();
    });
  }

  void Send(HttpAnswer answer, std::shared_ptr<void> kept) override {
    Post([answer = std::move(answer), kept = std::move(kept)](Connection* connection, bool is_head) mutable {
      connection->SendWhole(std::move(answer), is_head, std::move(kept));
    });
  }
  void Begin(HttpAnswer head, std::function<void()> gone, Written written) override {
    Post([head = std::move(head), gone = std::move(gone), written = std::move(written)](Connection* connection,
                                                                                        bool) mutable {
      connection->BeginPieces(std::move(head), std::move(gone), std::move(written));
    });
  }
  void Write(std::string piece, Written written) override {
    Post([piece = std::move(piece), written = std::move(written)](Connection* connection, bool) mutable {
      connection->WritePiece(std::move(piece), std::move(written));
    });
  }
  void End() override {
    Post([](Connection* connection, bool) { connection->EndPieces(); });
  }

 private:
  template <typename Work>
  void Post(Work work) {
    asio::post(guard_.get_executor(), [connection = connection_, is_head = is_head_, work = std::move(work)]() mutable {
      work(connection.get(), is_head);
    });
  }

  std::shared_ptr<Connection> connection_;
  const bool is_head_;
  const asio::executor_work_guard<typename Stream::executor_type> guard_;
};

}  // namespace

void HttpConnection::Open(Owner* owner, asio::ip::tcp::socket socket, const Limits& limits) {
  std::make_shared<Connection<PlainStream>>(owner, limits, std::move(socket))->Start(nullptr);
}

void HttpConnection::OpenTls(Owner* owner, asio::ip::tcp::socket socket, const Limits& limits,
                             std::shared_ptr<asio::ssl::context> context) {
  auto connection = std::make_shared<Connection<TlsStream>>(owner, limits, std::move(socket), *context);
  connection->Start(std::move(context));
}

}  // namespace stackd

// The daemon's gRPC server: its addresses, its services, its end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/access/tls_files.h"
#include "daemon/base/result.h"
#include "daemon/serve/service/served_parts.h"

namespace stackd {

// Where and for whom.
struct Listening {
  std::string address;      // empty: on the Unix socket only
  TlsFiles tls;             // empty: `address` must be a loopback one
  std::string access_file;  // empty: the built-in roles
  // Where the page and the API as JSON are served; empty: not there. With `tls` as the address above.
  std::string web_address = {};
  std::vector<std::string> web_hosts = {};  // see BrowserCheck
};

class Server {
 public:
  // Serves DIR/api.sock and, unless it is empty, the address. Fails with one sentence that says what to
  // change. A socket left behind by a dead daemon is replaced; one with a daemon behind it is not.
  static Result<std::unique_ptr<Server>> Start(const ServedParts& parts, const Listening& listening);
  ~Server();

  // "unix:/run/stackd/api.sock", "127.0.0.1:7443"
  const std::vector<std::string>& addresses() const;
  // "http://127.0.0.1:7446/"; "": it is not served.
  const std::string& web_url() const;

  // Accepts nothing more, ends streams, and waits at most `timeout_ns` for calls that run; then cancels them.
  void Drain(int64_t timeout_ns);

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stackd

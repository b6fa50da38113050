// Refuses what a browser sends on behalf of another site: a page that was read elsewhere must not reach this API.
#pragma once

#include <string>
#include <vector>

#include "daemon/http/http_message.h"

namespace stackd {

struct BrowserCheck {
  // Names by which a browser may call, besides "localhost" and addresses: "stackd.ops.example".
  std::vector<std::string> hosts;

  // Returns why the request is refused, as one sentence; "": it is not.
  //
  // Host: a name that an attacker binds to our address (DNS rebinding) makes that page the same origin. Such a name is not
  // known here. Origin: a browser names the site that a request is from.
  std::string Refuses(const HttpRequest& request) const;

 private:
  bool Knows(std::string_view host) const;
};

}  // namespace stackd

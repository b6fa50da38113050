// Where health and metrics are served to every host: a kubelet and a scraper come from other machines and show no
// certificate. Nothing of a dump is served there.
#pragma once

#include <string>

#include "daemon/base/result.h"
#include "daemon/serve/net/listen_address.h"

namespace stackd {

// Listens at ":7444" (all addresses, of both IP versions where the machine has both), "10.0.0.7:7444" or "[::1]:7444".
// `flag` is for the sentence of a failure: "--health-listen".
Result<ListeningSocket> ListenForAnybody(const std::string& flag, const std::string& listen);

}  // namespace stackd

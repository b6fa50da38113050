#include "daemon/serve/net/open_address.h"

namespace stackd {
namespace {

// A caller here shows no certificate, and needs none.
constexpr bool kAnyAddress = true;

}  // namespace

Result<ListeningSocket> ListenForAnybody(const std::string& flag, const std::string& listen) {
  const bool all_addresses = listen.starts_with(':');
  Result<ListeningSocket> listens = ListenAt(flag, all_addresses ? "[::]" + listen : listen, kAnyAddress);
  // A kernel without IPv6.
  if (!listens && all_addresses && listens.error().code != Code::kInvalidArgument) {
    listens = ListenAt(flag, "0.0.0.0" + listen, kAnyAddress);
  }
  if (listens) return listens;
  if (listens.error().code != Code::kInvalidArgument) return listens;
  return Error(Code::kInvalidArgument,
               flag + " \"" + listen + "\" is not understood: write it like :7444, 10.0.0.7:7444 or none");
}

}  // namespace stackd

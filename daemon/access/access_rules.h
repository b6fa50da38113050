// Who may do what: the file of --access.
//
//     access:
//       - uid: 1000
//         role: admin
//       - uri: "spiffe://cluster.local/ns/ops/sa/*"
//         role: dump
//       - dns: dashboard.ops.example
//         role: read
//     loopback: dump
//     limits:
//       calls_per_second: 200
//       captures_per_minute: 600
#pragma once

#include <sys/types.h>

#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/access/role.h"

namespace stackd {

// The process at the other end of a Unix socket, as the kernel names it.
struct UnixPeer {
  uid_t uid = 0;
  // In a PID namespace that ours does not contain: that of another container, where the same folder is mounted.
  bool is_elsewhere = false;

  // "uid:1000", "uid:1000 in another container"
  std::string Name() const;
  bool operator==(const UnixPeer&) const = default;
};

// The caller, as far as the connection proves it.
struct Peer {
  std::optional<UnixPeer> unix_peer;
  bool has_certificate = false;
  // Subject alternative names of the certificate.
  std::vector<std::string> uris, dns_names;
  bool is_loopback = false;
};

// What a caller may do, and its name in answers and in the audit: UnixPeer::Name, "loopback", "uri:spiffe://…", "dns:…",
// "certificate without names", "unknown".
struct Grant {
  std::string caller;
  Role role = Role::kNone;
};

struct AccessRule {
  enum class Kind : uint8_t { kUid, kUri, kDns };
  Kind kind = Kind::kUid;
  uid_t uid = 0;
  // A name, or its beginning and "*".
  std::string pattern;
  Role role = Role::kNone;
};

struct CallRates {
  int64_t calls_per_second = 200;
  int64_t captures_per_minute = 600;

  bool operator==(const CallRates&) const = default;
};

struct AccessRules {
  std::vector<AccessRule> rules;
  Role loopback = Role::kDump;
  CallRates rates;

  // The largest role of all rules that fit. Root and the user that the daemon runs as are admins unless a rule names them.
  // From another container they are not: the builder of a container chooses its user.
  Grant For(const Peer& peer, uid_t own_uid) const;
  // True if users other than the daemon's must be able to connect to the Unix socket.
  bool NamesOtherUids(uid_t own_uid) const;
};

// Faults are sentences with their place: "access.yaml:7:12: ...".
std::expected<AccessRules, std::vector<std::string>> ParseAccess(std::string_view text, const std::string& file);
std::expected<AccessRules, std::vector<std::string>> ReadAccess(const std::string& file);

// `stackd check-access FILE`: nullopt if that is not what was asked for, else the exit code.
std::optional<int> CheckAccessIfAsked(int argc, const char* const* argv);

}  // namespace stackd

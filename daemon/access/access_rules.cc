#include "daemon/access/access_rules.h"

#include <algorithm>

namespace stackd {
namespace {

bool Fits(const std::string& pattern, const std::string& name) {
  if (!pattern.ends_with('*')) return name == pattern;
  return name.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
}

// The name in `names` that `rule` is about.
const std::string* FittingName(const AccessRule& rule, const std::vector<std::string>& names) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& name) { return Fits(rule.pattern, name); });
  return found == names.end() ? nullptr : &*found;
}

Grant OfUser(const AccessRules& access, const UnixPeer& peer, uid_t own_uid) {
  Grant grant{.caller = peer.Name()};
  bool is_named = false;
  for (const AccessRule& rule : access.rules) {
    if (rule.kind != AccessRule::Kind::kUid || rule.uid != peer.uid) continue;
    is_named = true;
    grant.role = std::max(grant.role, rule.role);
  }
  if (!is_named && !peer.is_elsewhere && (peer.uid == 0 || peer.uid == own_uid)) grant.role = Role::kAdmin;
  return grant;
}

Grant OfCertificate(const AccessRules& access, const Peer& peer) {
  Grant grant;
  for (const AccessRule& rule : access.rules) {
    if (rule.kind == AccessRule::Kind::kUid) continue;
    const bool is_uri = rule.kind == AccessRule::Kind::kUri;
    const std::string* name = FittingName(rule, is_uri ? peer.uris : peer.dns_names);
    if (name == nullptr || (rule.role <= grant.role && !grant.caller.empty())) continue;
    grant = {.caller = (is_uri ? "uri:" : "dns:") + *name, .role = rule.role};
  }
  if (!grant.caller.empty()) return grant;
  if (!peer.uris.empty()) return {.caller = "uri:" + peer.uris[0]};
  if (!peer.dns_names.empty()) return {.caller = "dns:" + peer.dns_names[0]};
  return {.caller = "certificate without names"};
}

}  // namespace

std::string UnixPeer::Name() const { return "uid:" + std::to_string(uid) + (is_elsewhere ? " in another container" : ""); }

Grant AccessRules::For(const Peer& peer, uid_t own_uid) const {
  if (peer.unix_peer) return OfUser(*this, *peer.unix_peer, own_uid);
  if (peer.has_certificate) return OfCertificate(*this, peer);
  if (peer.is_loopback) return {.caller = "loopback", .role = loopback};
  return {.caller = "unknown"};
}

bool AccessRules::NamesOtherUids(uid_t own_uid) const {
  return std::any_of(rules.begin(), rules.end(), [&](const AccessRule& rule) {
    return rule.kind == AccessRule::Kind::kUid && rule.uid != 0 && rule.uid != own_uid && rule.role != Role::kNone;
  });
}

}  // namespace stackd

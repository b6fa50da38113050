#include "daemon/outside/socket_table.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

namespace stackd {
namespace {

constexpr uint64_t kTcpListens = 0x0a;
constexpr uint64_t kUnixListens = 0x10000;  // __SO_ACCEPTCON

// Without empty ones.
std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = line.find_first_not_of(' '); at < line.size(); at = line.find_first_not_of(' ', at)) {
    const size_t end = std::min(line.find(' ', at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

uint64_t NumberIn(std::string_view text, int base) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

// "0100007F:1F90": each 32 bits of the address as this machine has them, then the port. nullopt: none is bound.
std::optional<std::string> AddressText(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return std::nullopt;
  const uint64_t port = NumberIn(text.substr(colon + 1), 16);
  if (port == 0) return std::nullopt;
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < colon / 8; i++) words[i] = static_cast<uint32_t>(NumberIn(text.substr(8 * i, 8), 16));
  char address[INET6_ADDRSTRLEN];
  const bool is_v4 = colon == 8;
  if (inet_ntop(is_v4 ? AF_INET : AF_INET6, words.data(), address, sizeof(address)) == nullptr) return std::nullopt;
  return (is_v4 ? address : "[" + std::string(address) + "]") + ":" + std::to_string(port);
}

template <typename Take>
void ForEachRow(std::string_view text, const Take& take) {
  // The first line is the head.
  for (size_t at = text.find('\n'); at != std::string_view::npos;) {
    const size_t end = text.find('\n', at + 1);
    if (end == std::string_view::npos) return;
    take(text.substr(at + 1, end - at - 1));
    at = end;
  }
}

}  // namespace

void AddInternetSockets(std::string_view text, std::string_view kind, SocketNames* names) {
  ForEachRow(text, [&](std::string_view row) {
    // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
    const std::vector<std::string_view> words = Words(row);
    if (words.size() < 10) return;
    const uint64_t inode = NumberIn(words[9], 10);
    if (inode == 0) return;
    const auto own = AddressText(words[1]), peer = AddressText(words[2]);
    std::string name(kind);
    if (kind == "tcp" && NumberIn(words[3], 16) == kTcpListens) name += " listening on";
    if (own) name += " " + *own;
    if (peer) name += " -> " + *peer;
    names->try_emplace(inode, std::move(name));
  });
}

void AddUnixSockets(std::string_view text, SocketNames* names) {
  ForEachRow(text, [&](std::string_view row) {
    // Num RefCount Protocol Flags Type St Inode Path
    const std::vector<std::string_view> words = Words(row);
    if (words.size() < 7) return;
    const uint64_t inode = NumberIn(words[6], 10);
    if (inode == 0) return;
    std::string name = "unix";
    if ((NumberIn(words[3], 16) & kUnixListens) != 0) name += " listening on";
    if (words.size() > 7) name += " " + std::string(row.substr(static_cast<size_t>(words[7].data() - row.data())));
    names->try_emplace(inode, std::move(name));
  });
}

}  // namespace stackd

// One end of an agent's SOCK_SEQPACKET connection (agent/include/stackd/wire.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "stackd/wire.h"

namespace stackd {

// A message with the fds that came along; at least a header, and as long as that says.
struct ReceivedMessage {
  std::vector<char> bytes;
  std::vector<Fd> fds;

  uint32_t type() const;
  // The message as the struct of its type; nullopt if it is too short for that.
  template <typename T>
  std::optional<T> As() const {
    if (bytes.size() < sizeof(T)) return std::nullopt;
    T message;
    __builtin_memcpy(&message, bytes.data(), sizeof(T));
    return message;
  }
};

enum class ReceiveOutcome { kMessage, kNothing, kClosed, kMalformed };

// Does not block.
ReceiveOutcome ReceiveMessage(int socket_fd, ReceivedMessage* out);

// Does not block: false, with errno, if the other side does not read, or is gone. At most three `fds` go along.
bool SendMessage(int socket_fd, const stackd_message_header& message, std::initializer_list<int> fds = {});

}  // namespace stackd

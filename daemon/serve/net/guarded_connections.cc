#include "daemon/serve/net/guarded_connections.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/http/server_tls.h"
#include "daemon/log/log.h"
#include "daemon/serve/net/frame_guard.h"

namespace stackd {
namespace {

constexpr int64_t kTellEveryNs = kNsPerSecond;

// One kind of frame of all connections together, in this second: what one connection may do, a thousand of them may not.
class Crowd {
 public:
  // What came by one connection.
  struct Part {
    int64_t second = 0, count = 0;
  };

  explicit Crowd(int64_t per_second) : per_second_(per_second) {}

  // Counts `count` of them that came by the connection. Tells whether it takes more than its share of what all may have.
  bool IsTooMuch(int64_t count, Part* part, int64_t now_ns) {
    if (count == 0) return false;
    std::lock_guard lock(mutex_);
    const int64_t second = now_ns / kNsPerSecond;
    if (second != second_) {
      second_ = second;
      count_ = connections_ = 0;
    }
    if (part->second != second) {
      *part = {.second = second};
      ++connections_;
    }
    part->count += count;
    count_ += count;
    return count_ > per_second_ && part->count > std::max(kLeastShare, per_second_ / connections_);
  }

 private:
  static constexpr int64_t kLeastShare = 4;
  const int64_t per_second_;
  std::mutex mutex_;
  int64_t second_ = 0, count_ = 0, connections_ = 0;
};

// Calls are bounded by how many are open, too; what is reset leaves a queue that only grows on a busy machine.
Crowd g_calls(10'000), g_resets(300);
std::atomic<int64_t> g_ended = 0;
std::atomic<int64_t> g_told_ns = 0;

void Tell(const char* why) {
  const int64_t ended = ++g_ended, now_ns = MonotonicNs();
  int64_t told_ns = g_told_ns;
  if (told_ns != 0 && now_ns - told_ns < kTellEveryNs) return;
  if (!g_told_ns.compare_exchange_strong(told_ns, now_ns)) return;
  Log(LogLevel::kWarning, "a connection is ended: it is no client of stackd's",
      {{"why", why}, {"count_since_start", ended}});
}

struct Guarded {
  std::mutex mutex;
  ino_t inode = 0;  // of the socket: another one may have its number next
  bool is_ended = false;
  FrameGuard guard;
  Crowd::Part calls, resets;
  EndedCount ended;

  // Whether what was read may be given to gRPC.
  bool Take(const uint8_t* bytes, size_t count) {
    if (is_ended) return false;
    const int64_t now_ns = MonotonicNs(), calls_before = guard.calls(), resets_before = guard.resets();
    const char* why = guard.Look(bytes, count, now_ns);
    if (g_calls.IsTooMuch(guard.calls() - calls_before, &calls, now_ns) ||
        g_resets.IsTooMuch(guard.resets() - resets_before, &resets, now_ns)) {
      why = "it takes more than its share of the calls that all may make";
    }
    if (why == nullptr) return true;
    if (ended != nullptr) ++*ended;
    is_ended = true;
    Tell(why);
    return false;
  }
};

// By number. An entry is made once and stays.
std::array<std::atomic<Guarded*>, kMaxGuardedFd> g_by_fd;

ino_t InodeOf(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// The guard that was made for this number; nullptr if there is none. Its inode tells whether the socket is still the same.
Guarded* Find(int fd) {
  if (fd < 0 || fd >= kMaxGuardedFd) return nullptr;
  return g_by_fd[static_cast<size_t>(fd)].load(std::memory_order_acquire);
}

// Calls `look` with the first `count` bytes of the message, in pieces, until it returns false.
template <typename Look>
bool ForEachPiece(const msghdr& message, size_t count, Look look) {
  for (size_t i = 0; i < message.msg_iovlen && count > 0; ++i) {
    const size_t here = std::min(count, message.msg_iov[i].iov_len);
    if (!look(static_cast<const uint8_t*>(message.msg_iov[i].iov_base), here)) return false;
    count -= here;
  }
  return true;
}

// Whether gRPC may have the `count` bytes that were just read from `fd`.
bool MayHave(int fd, const msghdr& message, size_t count) {
  Guarded* guarded = Find(fd);
  if (guarded == nullptr) return true;
  std::lock_guard lock(guarded->mutex);
  if (guarded->inode != InodeOf(fd)) return true;
  return ForEachPiece(message, count, [&](const uint8_t* bytes, size_t here) { return guarded->Take(bytes, here); });
}

// Takes note of the `count` bytes that gRPC has just sent.
void HasSent(int fd, const msghdr& message, size_t count) {
  Guarded* guarded = Find(fd);
  if (guarded == nullptr) return;
  std::lock_guard lock(guarded->mutex);
  if (guarded->inode != InodeOf(fd)) return;
  ForEachPiece(message, count, [&](const uint8_t* bytes, size_t here) {
    guarded->guard.LookAtAnswers(bytes, here);
    return true;
  });
}

void FreeGuarded(void*, void* guarded, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<Guarded*>(guarded); }

// The guard of a connection with TLS, made when it is read first; OpenSSL frees it.
Guarded* GuardedOf(SSL* ssl) {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeGuarded);
  auto* guarded = static_cast<Guarded*>(SSL_get_ex_data(ssl, index));
  if (guarded != nullptr || index < 0) return guarded;
  auto made = std::make_unique<Guarded>();
  if (SSL_set_ex_data(ssl, index, made.get()) != 1) return nullptr;
  return made.release();
}

bool IsGuarded(const SSL* ssl) { return SSL_is_server(ssl) && !IsOfServerTls(ssl); }

}  // namespace

bool GuardConnection(int fd, EndedCount ended) {
  if (fd < 0 || fd >= kMaxGuardedFd) return false;
  std::atomic<Guarded*>& entry = g_by_fd[static_cast<size_t>(fd)];
  if (entry.load() == nullptr) entry.store(new Guarded, std::memory_order_release);
  Guarded* guarded = entry.load();
  std::lock_guard lock(guarded->mutex);
  guarded->inode = InodeOf(fd);
  guarded->is_ended = false;
  guarded->guard = FrameGuard();
  guarded->calls = guarded->resets = {};
  guarded->ended = std::move(ended);
  return true;
}

int64_t GuardedConnectionsEnded() { return g_ended; }

}  // namespace stackd

// The linker binds calls of these functions, in all that is linked statically, to those below.
extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names.
ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
int __real_SSL_read(SSL* ssl, void* bytes, int size);
int __real_SSL_write(SSL* ssl, const void* bytes, int size);

ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  const ssize_t count = __real_recvmsg(fd, message, flags);
  if (count <= 0 || flags != 0) return count;
  if (stackd::MayHave(fd, *message, static_cast<size_t>(count))) return count;
  errno = ECONNRESET;
  return -1;
}

ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  const ssize_t count = __real_sendmsg(fd, message, flags);
  if (count > 0) stackd::HasSent(fd, *message, static_cast<size_t>(count));
  return count;
}

int __wrap_SSL_read(SSL* ssl, void* bytes, int size) {
  const int count = __real_SSL_read(ssl, bytes, size);
  if (count <= 0 || !stackd::IsGuarded(ssl)) return count;
  stackd::Guarded* guarded = stackd::GuardedOf(ssl);
  if (guarded != nullptr) {
    std::lock_guard lock(guarded->mutex);
    if (guarded->Take(static_cast<const uint8_t*>(bytes), static_cast<size_t>(count))) return count;
  }
  // SSL_get_error tells of it.
  ERR_raise(ERR_LIB_SSL, SSL_R_BAD_PACKET);
  return -1;
}

int __wrap_SSL_write(SSL* ssl, const void* bytes, int size) {
  const int count = __real_SSL_write(ssl, bytes, size);
  stackd::Guarded* guarded = count > 0 && stackd::IsGuarded(ssl) ? stackd::GuardedOf(ssl) : nullptr;
  if (guarded != nullptr) {
    std::lock_guard lock(guarded->mutex);
    guarded->guard.LookAtAnswers(static_cast<const uint8_t*>(bytes), static_cast<size_t>(count));
  }
  return count;
}
// NOLINTEND(bugprone-reserved-identifier)
}

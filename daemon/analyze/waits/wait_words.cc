#include "daemon/analyze/waits/wait_words.h"

#include "daemon/base/printable.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

constexpr char kRefused[] = "the kernel refused it, for its owner waits for this thread, or has ended";

// "g_accounts in .bss of bank" for ".bss of bank: g_accounts".
std::string PlaceInWords(const std::string& place) {
  const size_t symbol = place.rfind(": ");
  if (!place.starts_with('.') || symbol == place.npos) return place;
  return place.substr(symbol + 2) + " in " + place.substr(0, symbol);
}

std::string ThingName(Wait::Kind kind) {
  switch (kind) {
    case Wait::MUTEX:
      return "mutex";
    case Wait::RWLOCK_READ:
    case Wait::RWLOCK_WRITE:
      return "rwlock";
    case Wait::CONDITION_VARIABLE:
      return "condition variable";
    case Wait::SEMAPHORE:
      return "semaphore";
    case Wait::BARRIER:
      return "barrier";
    case Wait::ONCE:
      return "once flag";
    case Wait::ATOMIC:
      return "atomic";
    case Wait::INTERNAL_LOCK:
      return "internal lock";
    case Wait::FUTURE:
      return "future";
    case Wait::GIL:
      return "the GIL";
    case Wait::MONITOR:
      return "monitor";
    default:
      return "futex";
  }
}

bool IsLockOrEvent(Wait::Kind kind) {
  switch (kind) {
    case Wait::MUTEX:
    case Wait::RWLOCK_READ:
    case Wait::RWLOCK_WRITE:
    case Wait::CONDITION_VARIABLE:
    case Wait::SEMAPHORE:
    case Wait::BARRIER:
    case Wait::ONCE:
    case Wait::ATOMIC:
    case Wait::INTERNAL_LOCK:
    case Wait::FUTEX:
    case Wait::FUTURE:
    case Wait::GIL:
    case Wait::MONITOR:
      return true;
    default:
      return false;
  }
}

// Whether what is waited for has a name: a lock of the C library's own, an object of a class, room in a channel.
bool IsNamed(const Wait& wait) {
  if (wait.lock_kind().empty()) return false;
  return wait.kind() == Wait::INTERNAL_LOCK || wait.kind() == Wait::GIL || wait.kind() == Wait::MONITOR ||
         wait.kind() == Wait::FUTEX;
}

std::string FdInWords(const v1::WaitedFd& fd) {
  std::string text = "fd " + std::to_string(fd.fd());
  if (!fd.name().empty()) text += " (" + fd.name() + ")";
  return text;
}

// "fd 3 (pipe:[17])", "12 fds: fd 3 (pipe:[17]), fd 4, ..."; empty if none is known.
std::string FdsInWords(const Wait& wait) {
  constexpr int kMaxShown = 3;
  if (wait.fds_size() == 0) return "";
  if (wait.fds_size() == 1) return FdInWords(wait.fds(0));
  std::string text = std::to_string(wait.fds_size()) + " fds: ";
  for (int i = 0; i < wait.fds_size() && i < kMaxShown; ++i) text += (i > 0 ? ", " : "") + FdInWords(wait.fds(i));
  return wait.fds_size() > kMaxShown ? text + ", ..." : text;
}

std::string WithFds(std::string_view text, std::string_view preposition, const Wait& wait) {
  const std::string fds = FdsInWords(wait);
  return fds.empty() ? std::string(text) : std::string(text) + " " + std::string(preposition) + " " + fds;
}

std::string VerbOf(const Wait& wait) {
  if (IsNamed(wait)) return "waits for ";
  switch (wait.kind()) {
    case Wait::RWLOCK_READ:
      return "waits to read-lock ";
    case Wait::RWLOCK_WRITE:
      return "waits to write-lock ";
    case Wait::CONDITION_VARIABLE:
    case Wait::FUTEX:
      return "waits on ";
    case Wait::BARRIER:
      return "waits at ";
    default:
      return "waits for ";
  }
}

std::string OtherWait(const Wait& wait, std::string_view syscall) {
  switch (wait.kind()) {
    case Wait::EVENTS:
      return WithFds("waits for events", "of", wait);
    case Wait::READ:
      return WithFds("waits to read", "from", wait);
    case Wait::WRITE:
      return WithFds("waits to write", "to", wait);
    case Wait::ACCEPT:
      return WithFds("waits for a connection", "on", wait);
    case Wait::CONNECT:
      return WithFds("waits for its connection", "on", wait);
    case Wait::SLEEP:
      return "sleeps";
    case Wait::FILE_LOCK:
      return WithFds("waits for a file lock", "of", wait);
    case Wait::CHILD:
      return "waits for a child process";
    case Wait::SIGNAL:
      return "waits for a signal";
    case Wait::DISK:
      return "waits uninterruptibly in the kernel" + (syscall.empty() ? "" : " (" + std::string(syscall) + ")");
    case Wait::IPC:
      return "waits for another process" + (syscall.empty() ? "" : " (" + std::string(syscall) + ")");
    case Wait::STOP:
      return "is stopped";
    default:
      return "is in " + (syscall.empty() ? "a system call" : std::string(syscall));
  }
}

}  // namespace

std::string ThreadWithTid(const v1::Thread& thread, int32_t pid) {
  const std::string tid = std::to_string(thread.tid());
  if (thread.tid() == pid) return "the main thread (tid " + tid + ")";
  if (thread.name().empty()) return "thread " + tid;
  return "thread " + PrintableText(thread.name()) + " (tid " + tid + ")";
}

void SetRefused(Wait* wait) {
  wait->set_owner(Wait::NOT_KNOWN);
  wait->set_owner_note(kRefused);
  wait->clear_address();
  wait->clear_place();
}

const char* HeldBy(const Wait& wait) { return wait.kind() == Wait::ONCE ? ", whose initializer is run by " : ", held by "; }

bool IsRefused(const Wait& wait) { return wait.owner() == Wait::NOT_KNOWN && wait.owner_note() == kRefused; }

std::string WaitedThing(const Wait& wait) {
  std::string thing = IsNamed(wait) ? wait.lock_kind() : ThingName(wait.kind());
  // Most processes have one GIL, and its address tells the reader nothing.
  const bool has_address = !wait.address().empty() && wait.kind() != Wait::GIL;
  if (has_address) thing += " " + wait.address();
  if (!wait.place().empty()) thing += " (" + PlaceInWords(wait.place()) + ")";
  return thing;
}

std::string ShortWait(const Wait& wait, std::string_view syscall) {
  if (wait.kind() == Wait::JOIN) return "waits for a thread to end";
  if (!IsLockOrEvent(wait.kind())) return OtherWait(wait, syscall);
  if (IsRefused(wait)) return "waits for ever for a mutex with priority inheritance";
  return VerbOf(wait) + WaitedThing(wait);
}

std::string ExplainWait(const Wait& wait, const std::string& owner, std::string_view syscall) {
  if (wait.kind() == Wait::JOIN && !owner.empty()) return "waits for " + owner + " to end";
  std::string text = ShortWait(wait, syscall);
  if (wait.owner() == Wait::KNOWN && !owner.empty()) {
    text += HeldBy(wait) + owner;
    if (!wait.owner_note().empty()) text += " (" + wait.owner_note() + ")";
  } else if (!wait.owner_note().empty()) {
    text += "; " + wait.owner_note();
  }
  return text;
}

}  // namespace stackd

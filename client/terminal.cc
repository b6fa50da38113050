#include "client/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// The alternate screen, without a cursor; lines that are too long do not go on in the next.
constexpr char kTake[] = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr char kGiveBack[] = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kClearLine[] = "\x1b[K";
constexpr char kClearBelow[] = "\x1b[J";
constexpr std::array kSignals{SIGTERM, SIGHUP, SIGINT, SIGWINCH};

// The signals that came, one byte each. Any thread may get them, so that a mask of this one would not do.
int signal_pipe[2] = {-1, -1};

bool Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void OnSignal(int number) {
  const int saved_errno = errno;
  const char byte = static_cast<char>(number);
  (void)!write(signal_pipe[1], &byte, 1);
  errno = saved_errno;
}

struct NamedKey {
  std::string_view bytes;
  Key key;
};
constexpr NamedKey kKeys[] = {
    {"\x1b[A", Key::kUp},   {"\x1bOA", Key::kUp},    {"k", Key::kUp},           {"\x1b[B", Key::kDown},
    {"\x1bOB", Key::kDown}, {"j", Key::kDown},       {"\x1b[5~", Key::kPageUp}, {"\x1b[6~", Key::kPageDown},
    {" ", Key::kPageDown},  {"\x1b[H", Key::kHome},  {"\x1bOH", Key::kHome},    {"\x1b[1~", Key::kHome},
    {"g", Key::kHome},      {"\x1b[F", Key::kEnd},   {"\x1bOF", Key::kEnd},     {"\x1b[4~", Key::kEnd},
    {"G", Key::kEnd},       {"\r", Key::kEnter},     {"\n", Key::kEnter},       {"\x1b", Key::kBack},
    {"\x1b[D", Key::kBack}, {"\x1bOD", Key::kBack},  {"q", Key::kQuit},         {"\x03", Key::kQuit},
    {"\x04", Key::kQuit},   {"\x1a", Key::kSuspend},
};

bool IsDumb() {
  const char* term = getenv("TERM");
  return term == nullptr || *term == '\0' || strcmp(term, "dumb") == 0;
}

}  // namespace

Key TakeKey(std::string* bytes) {
  const NamedKey* longest = nullptr;
  for (const NamedKey& named : kKeys) {
    if (bytes->starts_with(named.bytes) && (longest == nullptr || named.bytes.size() > longest->bytes.size())) {
      longest = &named;
    }
  }
  size_t length = longest == nullptr ? 1 : longest->bytes.size();
  // A sequence that is not known ends with its first letter; the rest of it is no key either.
  if (longest != nullptr && longest->key == Key::kBack && length == 1 && bytes->size() > 2 && bytes->at(1) == '[') {
    longest = nullptr;
    length = std::min(bytes->find_first_not_of("0123456789;", 2), bytes->size() - 1) + 1;
  }
  bytes->erase(0, length);
  return longest == nullptr ? Key::kNone : longest->key;
}

std::string Clipped(std::string_view text, size_t columns) {
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    const bool continues = (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80;
    if (!continues && ++seen > columns) break;
  }
  return std::string(text.substr(0, end));
}

bool HasColour() {
  const char* no_color = getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && !IsDumb() && (no_color == nullptr || *no_color == '\0');
}

Result<Terminal> Terminal::Open() {
  Terminal terminal;
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0 || IsDumb() ||
      tcgetattr(STDIN_FILENO, &terminal.former_) != 0) {
    return Error(Code::kFailedPrecondition, "this is no terminal with a screen; use --once");
  }
  if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0) return Error(Code::kUnavailable, strerror(errno));
  for (const int number : kSignals) {
    struct sigaction action{};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
  terminal.Take();
  return terminal;
}

Terminal::Terminal(Terminal&& other) noexcept
    : is_open_(std::exchange(other.is_open_, false)), former_(other.former_), typed_(std::move(other.typed_)) {}

Terminal::~Terminal() {
  if (is_open_) GiveBack();
}

void Terminal::Take() {
  is_open_ = true;
  termios raw = former_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
  Write(kTake);
}

void Terminal::GiveBack() {
  Write(kGiveBack);
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &former_);
}

Terminal::Size Terminal::size() const {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {24, 80};
  return {size.ws_row, size.ws_col};
}

bool Terminal::Show(const std::vector<std::string>& lines) {
  const size_t height = size().lines;
  std::string text = kHome;
  for (size_t i = 0; i < std::min(lines.size(), height); ++i) {
    text += (i == 0 ? "" : "\r\n") + lines[i] + kClearLine;
  }
  return Write(text + kClearBelow);
}

Key Terminal::AfterSignal() {
  char number = 0;
  while (read(signal_pipe[0], &number, 1) == 1) {
    if (number != SIGWINCH) return Key::kQuit;
  }
  return Key::kResized;
}

Key Terminal::Await(int64_t deadline_ns, std::array<int, 2> event_fds) {
  while (true) {
    if (const Key key = TakeTyped(); key != Key::kNone) return key;
    const int64_t left_ns = std::max<int64_t>(deadline_ns - MonotonicNs(), 0);
    pollfd waited[] = {
        {signal_pipe[0], POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}, {event_fds[0], POLLIN, 0}, {event_fds[1], POLLIN, 0}};
    const int ready = poll(waited, std::size(waited), static_cast<int>((left_ns + kNsPerMs - 1) / kNsPerMs));
    if (ready < 0) continue;
    if (ready == 0) return Key::kNone;
    if (waited[0].revents != 0) return AfterSignal();
    if (waited[1].revents == 0) return Key::kNone;
    char bytes[64];
    const ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (got == 0 || (got < 0 && errno != EINTR)) return Key::kQuit;
    typed_.append(bytes, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  }
}

Key Terminal::TakeTyped() {
  while (!typed_.empty()) {
    const Key key = TakeKey(&typed_);
    if (key == Key::kNone) continue;
    if (key != Key::kSuspend) return key;
    GiveBack();
    raise(SIGTSTP);
    Take();
    return Key::kResized;
  }
  return Key::kNone;
}

}  // namespace stackd

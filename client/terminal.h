// A terminal that a command has for itself: one screen, and keys as they are pressed.
#pragma once

#include <signal.h>
#include <termios.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace stackd {

enum class Key : uint8_t { kNone, kUp, kDown, kPageUp, kPageDown, kHome, kEnd, kEnter, kBack, kQuit, kSuspend, kResized };

// Takes the first key off what a terminal sent. kNone: that means nothing here.
Key TakeKey(std::string* bytes);

// `text` up to that many columns, by characters of one column each. Counts no bytes of UTF-8 that continue a character.
std::string Clipped(std::string_view text, size_t columns);

// Whether text may have colours: standard output is a terminal that knows them, and NO_COLOR does not say otherwise.
bool HasColour();

// Takes the terminal over from Open to the end, which a signal may bring as well. There is one in a program.
class Terminal {
 public:
  // Fails with one sentence where standard input or output is no terminal that can be written at any place.
  static Result<Terminal> Open();
  Terminal(Terminal&& other) noexcept;
  Terminal& operator=(Terminal&&) = delete;
  ~Terminal();

  struct Size {
    size_t lines;
    size_t columns;
  };
  Size size() const;
  // Shows these lines in place of what was there. What does not fit is left out. False: it could not be written.
  bool Show(const std::vector<std::string>& lines);
  // The next key. kNone: none came before `deadline_ns`, or one of `event_fds` (-1: none) can be read. kQuit also where the
  // terminal is gone.
  Key Await(int64_t deadline_ns, std::array<int, 2> event_fds);

 private:
  Terminal() = default;
  void Take();
  void GiveBack();
  Key AfterSignal();
  Key TakeTyped();

  bool is_open_ = false;
  termios former_{};
  std::string typed_;  // that is no key yet
};

}  // namespace stackd

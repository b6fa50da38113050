// Output in pieces of a bounded size.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "daemon/export/export.h"

namespace stackd {

// Gathers text and hands it to a sink in pieces of 64 KiB; the last one, at the end of its life, may be smaller. Once the
// sink wants no more, nothing more is handed to it.
class Piecewise {
 public:
  static constexpr size_t kPieceBytes = 64 << 10;

  explicit Piecewise(const Sink& sink) : sink_(sink) {}
  Piecewise(const Piecewise&) = delete;
  Piecewise& operator=(const Piecewise&) = delete;
  ~Piecewise() {
    if (wanted_ && !pending_.empty()) sink_(pending_);
  }

  // False once the sink wants no more.
  bool wanted() const { return wanted_; }

  Piecewise& operator<<(std::string_view text) {
    while (wanted_ && pending_.size() + text.size() >= kPieceBytes) {
      const size_t fitting = kPieceBytes - pending_.size();
      pending_ += text.substr(0, fitting);
      text.remove_prefix(fitting);
      wanted_ = sink_(pending_);
      pending_.clear();
    }
    if (wanted_) pending_ += text;
    return *this;
  }

 private:
  const Sink& sink_;
  std::string pending_;
  bool wanted_ = true;
};

}  // namespace stackd

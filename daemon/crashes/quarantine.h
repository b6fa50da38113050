// Files that may have ended the daemon: attempts at them are noted on disk before they are read.
//
// After two attempts that did not end, a file gets a last one when the daemon has run for a while: it may have been ended
// by something else, several times in a row. If that does not end either, the file is moved out of the way and kept.
#pragma once

#include <memory>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace stackd {

// Thread safety: one thread at a time.
class Quarantine {
 public:
  static constexpr int kCarefulAttempts = 2;
  static constexpr int kMaxAttempts = 3;
  static constexpr int64_t kLastAttemptAfterNs = 10'000'000'000;  // of the daemon's life
  static constexpr size_t kMaxFiles = 16;
  static constexpr int64_t kMaxBytes = 32 << 20;

  // Makes DIR/quarantine if it is not there, for this user alone. Fails with one sentence.
  static Result<std::unique_ptr<Quarantine>> Open(const std::string& dir);

  // How often work on the file of this name began without an end. 0 where that is not known.
  int Attempts(const std::string& name) const;
  // Notes that it begins.
  void Begin(const std::string& name) const;
  void End(const std::string& name) const;

  // Moves the file from its folder to the quarantine, and removes the oldest ones there that are too many. The path of its
  // new place; "" if it cannot be moved.
  std::string Keep(int from_folder_fd, const std::string& name) const;

 private:
  Quarantine(Fd folder, std::string path) : folder_(std::move(folder)), path_(std::move(path)) {}
  void RemoveOldest() const;

  const Fd folder_;
  const std::string path_;
};

}  // namespace stackd

// Files that may have ended the daemon: attempts at them are noted on disk before they are read.
//
// After two unfinished attempts a file gets a last one when the daemon has run for a while. Something else may have ended
// the daemon, several times in a row. If the last one does not finish either, the file is moved out of the way and kept.
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

  // Number of unfinished attempts on the file of this name; 0 where that is not known.
  int Attempts(const std::string& name) const;
  // Notes that an attempt begins.
  void Begin(const std::string& name) const;
  void End(const std::string& name) const;

  // Moves the file from its folder to the quarantine, and removes the oldest there above the limits. Returns the new path;
  // "" if the file cannot be moved.
  std::string Keep(int from_folder_fd, const std::string& name) const;

 private:
  Quarantine(Fd folder, std::string path) : folder_(std::move(folder)), path_(std::move(path)) {}
  void RemoveOldest() const;

  const Fd folder_;
  const std::string path_;
};

}  // namespace stackd

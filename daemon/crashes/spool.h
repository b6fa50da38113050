// The folder of crashes that no daemon took from a ring (agent/include/stackd/spool.h).
//
// Each connected process has an empty file there, whose name says whose it is. The daemon chose the name, so it can be
// trusted after a restart of the daemon too. A process without one makes a file itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/crashes/quarantine.h"
#include "daemon/ring/record.h"
#include "stackd/spool.h"

namespace stackd {

// The first bytes of a file that the process had mapped, as they are in its memory.
struct SpoolImage {
  uint64_t start_avma = 0;
  std::string bytes;
};

// A file, checked as a record of a ring is. What the process says of itself is not verified.
struct SpoolCrash {
  stackd_hello process;
  int64_t wall_ns = 0;
  CrashRecord record;
  std::string maps;
  std::vector<SpoolImage> images;
};

// Fails with kUnavailable for a file that its agent did not finish, kDataLoss for what no agent writes.
Result<SpoolCrash> ParseSpoolFile(std::string_view bytes);

// Thread-safe: it has no state but the folder's.
class Spool {
 public:
  // The process that the daemon gave a file, and its user as the kernel names it.
  struct Owner {
    std::string process_id;
    uid_t uid;
  };
  struct NewFile {
    Fd fd;
    std::string name;
  };
  struct File {
    std::string bytes;
    uid_t uid;    // owner of the file
    bool in_use;  // a process may still write to it
  };

  // Makes DIR/spool if it is not there, and closes it to others if DIR is. Fails with one sentence that says what to
  // change.
  static Result<std::unique_ptr<Spool>> Open(const std::string& dir);
  // What an operator should know of the folder's state at Open; "" if nothing.
  const std::string& notice() const { return notice_; }

  // An empty file for a process.
  Result<NewFile> Create(const Owner& owner) const;
  // nullopt for a name that Create did not choose.
  static std::optional<Owner> OwnerOf(const std::string& name);

  // Names of the files that may hold a crash, at most 65,536.
  std::vector<std::string> Names() const;
  // Fails with kNotFound if it is not there, with kInvalidArgument if it is no regular file or too large. kUnavailable: it
  // cannot be read now or by this user.
  Result<File> Read(const std::string& name) const;
  // Empties a file that is larger than a crash can be, while its process may still write. True if it was.
  bool CutIfTooLarge(const std::string& name) const;
  void Remove(const std::string& name) const;
  // Keeps it for an operator, under a name that Names does not return.
  void SetAside(const std::string& name) const;
  // Moves it to the quarantine, or removes it if that cannot be. The path of its new place, if it has one.
  std::string MoveTo(const Quarantine& quarantine, const std::string& name) const;
  // Removes all files set aside but the 16 newest.
  void RemoveOldSetAside() const;

 private:
  Spool(Fd folder, std::string notice) : folder_(std::move(folder)), notice_(std::move(notice)) {}

  const Fd folder_;
  const std::string notice_;
};

}  // namespace stackd

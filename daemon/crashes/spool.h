// The folder of crashes that no daemon took from a ring (agent/include/stackd/spool.h).
//
// Each connected process has an empty file there, whose name says whose it is: the daemon chose the name, so what it says
// holds after the daemon has been started again. A process without one makes a file itself.
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

// A file, checked as a record of a ring is. What the process says of itself is its own word.
struct SpoolCrash {
  stackd_hello process;
  int64_t wall_ns = 0;
  CrashRecord record;
  std::string maps;
  std::vector<SpoolImage> images;
};

// Fails with kUnavailable for a file that nobody finished, kDataLoss for anything else that the agent does not write.
Result<SpoolCrash> ParseSpoolFile(std::string_view bytes);

// Thread-safe: it has no state but the folder's.
class Spool {
 public:
  // To whom the daemon gave a file, and the kernel's word for its user.
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
    bool in_use;  // somebody may still write to it
  };

  // Makes DIR/spool if it is not there, and closes it to others if DIR is. Fails with one sentence that says what to
  // change.
  static Result<std::unique_ptr<Spool>> Open(const std::string& dir);
  // What people should know of how it was opened; "" if nothing.
  const std::string& notice() const { return notice_; }

  // An empty file for a process.
  Result<NewFile> Create(const Owner& owner) const;
  // nullopt for a name that Create did not choose.
  static std::optional<Owner> OwnerOf(const std::string& name);

  // Of all files that may hold a crash, at most 65,536.
  std::vector<std::string> Names() const;
  // Fails with kNotFound if it is not there, kInvalidArgument if it cannot be one (no regular file, too large),
  // kUnavailable if it cannot be read now or by this user.
  Result<File> Read(const std::string& name) const;
  // Cuts off what a process has written beyond what a crash can have, as long as it may still write. True if it had.
  bool CutIfTooLarge(const std::string& name) const;
  void Remove(const std::string& name) const;
  // Keeps it for people under a name that Names does not give.
  void SetAside(const std::string& name) const;
  // Moves it to the quarantine, or removes it if that cannot be. The path of its new place, if it has one.
  std::string MoveTo(const Quarantine& quarantine, const std::string& name) const;
  // Of those that are kept so, all but the 16 newest.
  void RemoveOldSetAside() const;

 private:
  Spool(Fd folder, std::string notice) : folder_(std::move(folder)), notice_(std::move(notice)) {}

  const Fd folder_;
  const std::string notice_;
};

}  // namespace stackd

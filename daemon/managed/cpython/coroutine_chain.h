// What a coroutine awaits, and what that awaits, read out of the memory of a process that runs on: CPython 3.8 to 3.14.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/managed/cpython/cpython_objects.h"

namespace stackd {

enum class CoroutineState : uint8_t { kCreated, kSuspended, kInAwait, kExecuting, kCompleted };

struct CoroutineChain {
  struct Link {
    uint64_t coroutine_avma = 0;
    uint64_t code_avma = 0;
    int64_t position = 0;  // in the code, as of CpythonObjects::Function::LineAt
    CoroutineState state = CoroutineState::kCompleted;
    bool operator==(const Link&) const = default;
  };
  std::vector<Link> links;    // from the first coroutine inward; none has completed
  uint64_t awaited_avma = 0;  // by the last one; 0: nothing
  bool operator==(const CoroutineChain&) const = default;
};

class CoroutineReader {
 public:
  // `objects` is open, and outlives it.
  explicit CoroutineReader(CpythonObjects* objects) : objects_(*objects) {}

  bool IsCoroutine(uint64_t object_avma) const;
  // nullopt if it went on at each of some looks.
  std::optional<CoroutineChain> ReadStanding(uint64_t coroutine_avma) const;

 private:
  // The start of an object: a program may have a thousand tasks, and a read takes a microsecond.
  struct Start;

  CoroutineChain Read(uint64_t coroutine_avma) const;
  // Each finds what a coroutine awaits as well, if it is in an await. `type` is the name of its type.
  CoroutineChain::Link ReadLink(const Start& coroutine, const std::string& type, uint64_t* awaited_avma) const;
  CoroutineChain::Link ReadFrameObject(const Start& coroutine, const std::string& type, uint64_t* awaited_avma) const;

  CpythonObjects& objects_;
};

}  // namespace stackd

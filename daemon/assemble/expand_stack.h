// Makes the stack that people read of program counters and their source locations. Each inlined call is a frame, and what
// runtimes know of their own calls stands between the native frames.
#pragma once

#include <google/protobuf/arena.h>
#include <xxhash.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/assemble/assemble.h"
#include "daemon/fingerprint/recursion.h"
#include "daemon/modules/address_map.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// "0x7f12": addresses as the API writes them.
std::string Hex(uint64_t value);

// "libc.so.6" for "/usr/lib/libc.so.6 (deleted)"; "[vdso]" as it stands; "[anon]" for no mapping or one without a name.
std::string ModuleName(const Mapping* mapping);

// Expands the stacks of one dump. Stacks share the frames that they have in common: a dump of many threads has many more
// frames than places in code.
class StackExpander {
 public:
  // Frames are made on `arena`, where the expanded stacks must be too. Both arguments outlive this.
  StackExpander(const AddressMap& map, google::protobuf::Arena* arena) : map_(map), arena_(arena) {}

  // Inlined frames come before the function that they are inlined into, as debuggers number them. With `fold`, recursion is
  // shown once and counted. Returns the fingerprint.
  std::string Expand(const NamedStack& stack, bool fold, v1::Stack* expanded);
  // Expands a stack that only a runtime knows.
  std::string Expand(const std::vector<RuntimeFrame>& frames, bool fold, v1::Stack* expanded);

  // Mappings that expanded frames lie in, in the order of their first use; one may be there twice.
  const std::vector<const Mapping*>& mappings() const { return mappings_; }

 private:
  struct Place {
    uint64_t pc_avma;
    FrameOrigin origin;
    const SourceLocation* location;
    bool replaced;
    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const {
      return (place.pc_avma ^ std::hash<const void*>()(place.location) << 1 ^ static_cast<uint64_t>(place.origin) ^
              static_cast<uint64_t>(place.replaced) << 8) *
             0x9e3779b97f4a7c15ull;
    }
  };
  // What a place has in `frames_` and `hashes_`: indices, the end excluded.
  struct Range {
    size_t begin;
    size_t end;
  };

  // One native frame with those inlined into it, or one function of a runtime.
  struct Row {
    Range frames;
    NativeFrame native;  // that it is, or that it stands before
  };

  Range FramesAt(const NativeFrame& native, const SourceLocation& location, bool replaced);
  Range FrameOf(const RuntimeFrame& runtime);
  std::vector<Row> RowsOf(const NamedStack& stack, size_t* gap_row);
  std::vector<Recursion> RecursionIn(const std::vector<Row>& rows, const NativeStack& native, size_t gap_row) const;
  bool InnermostTurnDiffers(const std::vector<Row>& rows, const Recursion& recursion) const;
  XXH128_hash_t KeyOf(const Range& range) const;

  const AddressMap& map_;
  google::protobuf::Arena* const arena_;
  std::unordered_map<Place, Range, PlaceHash> ranges_;
  std::unordered_map<std::string, Range> runtime_ranges_;
  std::vector<v1::Frame*> frames_;
  std::vector<XXH128_hash_t> hashes_;
  std::vector<const Mapping*> mappings_;
};

}  // namespace stackd

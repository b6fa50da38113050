// A whole dump as the body of a log record.
#pragma once

#include <cstddef>
#include <string>

#include "daemon/base/result.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct PackedDumpBody {
  std::string text;    // base64 of gzip of what `stackctl export -f json` writes
  std::string digest;  // "sha256:" and 64 hex digits, of that JSON
  size_t json_bytes = 0;
};

// kResourceExhausted, with what is too large: a dump that an answer of the API could not hold, or a body that collectors do
// not take.
Result<PackedDumpBody> PackDumpBody(const v1::Dump& dump);

}  // namespace stackd

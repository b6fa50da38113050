// What the daemon and its symbol worker say to each other over a Unix stream socket. Both are one binary, so there are no
// versions; but the worker may have been taken over by the file that it read, so the daemon checks every answer.
//
//   daemon -> worker   RequestHeader, path, addresses; with the first byte comes the module's fd
//   worker -> daemon   for each address, in any order: AnswerHeader, body
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/symbolize/symbolizer.h"

namespace stackd {

// argv of the worker: program, this, memory limit in bytes, folders of debug files.
inline constexpr char kWorkerFlag[] = "--symbolize-worker";
// Where the worker finds its socket.
inline constexpr int kWorkerSocketFd = 3;
// In the worker's environment. A program that does not call RunSymbolizeWorkerIfAsked would else start itself for ever.
inline constexpr char kWorkerEnvironment[] = "STACKD_SYMBOLIZE_WORKER";

// Exit codes that mean something.
inline constexpr int kWorkerOutOfMemory = 77;
inline constexpr int kWorkerRecycled = 78;  // ended between two requests, to give memory back
inline constexpr int kWorkerBadRequest = 79;

// kNames: from symbol tables, at once. kLines: with files, lines and inlined frames.
enum class Phase : uint8_t { kNames, kLines };

struct RequestHeader {
  uint64_t module_id;  // the same for the same file, so that the worker can keep what it read
  uint32_t path_bytes;
  uint32_t address_count;
  Phase phase;
  uint8_t padding[7];
};
inline constexpr uint32_t kMaxRequestPathBytes = 4096;
inline constexpr uint32_t kMaxRequestAddresses = 256;

struct AnswerHeader {
  uint32_t body_bytes;
  uint32_t address_index;
  SymbolQuality quality;
  uint32_t frame_count;
};
inline constexpr uint32_t kMaxAnswerBodyBytes = 1 << 20;
inline constexpr uint32_t kMaxAnswerFrames = 256;

// Appends header and body; frames that do not fit into the limits are left out, outermost first to stay.
void AppendAnswer(uint32_t address_index, SymbolQuality quality, const SourceLocation& location, std::string* out);
// nullopt if `body` is not what AppendAnswer writes.
std::optional<SourceLocation> ParseAnswerBody(uint32_t frame_count, std::string_view body);

}  // namespace stackd

// Protocol of the daemon and its symbol worker over a Unix stream socket. Both are one binary, so there are no versions. A
// file that the worker reads may take it over, so the daemon checks every answer.
//
//   daemon -> worker   RequestHeader, path, addresses; with the first byte comes the module's fd
//   worker -> daemon   for each address, in any order: AnswerHeader, body
//
// The worker may open nothing. Before its last answer it may ask for debug files, one at a time:
//
//   worker -> daemon   AnswerHeader with kFileRequest for an address; body: number of the folder, path below it
//   daemon -> worker   one byte; with it comes the file's fd if it is there
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
inline constexpr int kWorkerUnconfined = 80;  // the kernel did not let it give up its rights

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

// Instead of the index of an address.
inline constexpr uint32_t kFileRequest = UINT32_MAX;
// How often a worker may ask while it answers so many addresses: debug data that was let go needs its dwz file again.
constexpr size_t MaxFileRequests(size_t folders, size_t addresses) { return folders * (4 + 2 * (addresses + 1)); }

// `folder`: its place among those in the worker's arguments.
std::string FileRequest(uint32_t folder, std::string_view relative_path);
// Takes the folder off a body, so that the path is left. nullopt if the body is too short.
std::optional<uint32_t> TakeFolder(std::string_view* body);

// Appends header and body; frames that do not fit into the limits are left out, outermost first to stay.
void AppendAnswer(uint32_t address_index, SymbolQuality quality, const SourceLocation& location, std::string* out);
// nullopt if `body` is not what AppendAnswer writes.
std::optional<SourceLocation> ParseAnswerBody(uint32_t frame_count, std::string_view body);

}  // namespace stackd

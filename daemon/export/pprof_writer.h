// pprof's profile.proto in gzip, piece by piece. Source of the format: github.com/google/pprof, proto/profile.proto.
#pragma once

#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/export/export.h"
#include "daemon/export/flat_stack.h"
#include "pprof/profile.pb.h"

namespace stackd {

// What the numbers of samples count: "threads" in "count".
struct PprofValueType {
  std::string_view type, unit;
};

// Texts, functions and places are written when they are first met, and named by number from then on.
class PprofWriter {
 public:
  PprofWriter(std::span<const PprofValueType> value_types, const Sink& sink);

  // False once the sink wants no more.
  bool wanted() const { return wanted_; }

  // One comment for each line of `text`.
  void AddComments(std::string_view text);
  void AddMapping(const v1::Module& module);
  void SetTime(int64_t begin_wall_ns, int64_t duration_ns);
  // Samples are taken each `period_ns`.
  void SetPeriod(int64_t period_ns);

  // Ids of the places of `frames`, innermost first. Frames that the compiler put into another one are in its place.
  std::vector<uint64_t> Locations(std::span<const FlatFrame> frames);

  // Adds a sample, with a value for each type. It is good until the next one is added.
  pprof::Sample* AddSample(std::span<const uint64_t> location_ids, std::span<const int64_t> values);
  // Adds nothing where the text is empty, or the number 0.
  void AddLabel(std::string_view key, std::string_view text, pprof::Sample* sample);
  void AddNumber(std::string_view key, uint64_t number, pprof::Sample* sample);

  // Writes what is left.
  void Finish() { Flush(); }

 private:
  // What protobuf's streams write goes to a sink.
  class SinkStream final : public google::protobuf::io::CopyingOutputStream {
   public:
    explicit SinkStream(const Sink& sink) : sink_(sink) {}
    bool Write(const void* bytes, int size_bytes) override {
      return sink_({static_cast<const char*>(bytes), static_cast<size_t>(size_bytes)});
    }

   private:
    const Sink& sink_;
  };

  // The index of a text.
  int64_t String(std::string_view text);
  uint64_t Function(std::string_view name, std::string_view file);
  // `frames`: those at one address, the function itself last.
  uint64_t Location(std::span<const FlatFrame> frames);
  // 0: none.
  uint64_t MappingOf(const v1::Frame& frame, uint64_t address) const;
  void Flush();

  // Messages of protobuf one behind the other are one message, lists joined.
  SinkStream bytes_;
  google::protobuf::io::CopyingOutputStreamAdaptor pieces_;
  google::protobuf::io::GzipOutputStream gzip_;  // ends the file when it goes
  bool wanted_ = true;
  // What was not yet written, and about how much that is.
  pprof::Profile pending_;
  size_t pending_bytes_ = 0;

  std::unordered_map<std::string, size_t> string_ids_;
  std::map<std::pair<int64_t, int64_t>, uint64_t> function_ids_;  // by name and file
  std::unordered_map<std::string, uint64_t> location_ids_;        // by the message without its id
  uint64_t mapping_count_ = 0;
  std::unordered_map<std::string, std::map<uint64_t, uint64_t>> mappings_;  // ids by the name in frames and the start
};

}  // namespace stackd

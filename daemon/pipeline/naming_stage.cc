#include "daemon/pipeline/naming_stage.h"

#include <memory>
#include <unordered_map>
#include <utility>

#include "daemon/base/text.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

std::shared_ptr<const SourceLocation> OutsideOfFiles() {
  static const auto location = std::make_shared<const SourceLocation>(
      SourceLocation{{}, "no ELF file is mapped here: code made at run time, or a file that could not be had"});
  return location;
}

// What is known of code outside of files, each address once.
class CodeOutsideOfFiles {
 public:
  explicit CodeOutsideOfFiles(const NameCode& name) : name_(name) {}

  std::shared_ptr<const SourceLocation> At(uint64_t avma) {
    if (!name_) return OutsideOfFiles();
    auto& location = known_[avma];
    if (location != nullptr) return location;
    std::string function = name_(avma);
    if (function.empty()) return location = OutsideOfFiles();
    SourceLocation named;
    named.frames.push_back({.function = std::move(function)});
    return location = std::make_shared<const SourceLocation>(std::move(named));
  }

 private:
  const NameCode& name_;
  std::unordered_map<uint64_t, std::shared_ptr<const SourceLocation>> known_;
};

}  // namespace

void NamingStage::Name(const Capture& capture, const NameCode& name_code, int64_t deadline_ns,
                       std::vector<NamedStack>* stacks) {
  std::vector<AddressQuery> queries;
  std::unordered_map<uint64_t, size_t> query_of_avma;
  std::vector<size_t> query_of_frame;
  constexpr size_t kNoQuery = SIZE_MAX;
  for (const NamedStack& stack : *stacks) {
    for (const NativeFrame& frame : stack.native.frames) {
      const uint64_t avma = frame.lookup_avma();
      const auto [entry, is_new] = query_of_avma.try_emplace(avma, kNoQuery);
      if (is_new) {
        const Mapping* mapping = capture.map->Find(avma);
        if (mapping != nullptr && mapping->module != nullptr) {
          entry->second = queries.size();
          queries.push_back({mapping->module, avma - mapping->bias});
        }
      }
      query_of_frame.push_back(entry->second);
    }
  }
  auto locations = symbolizer_->Symbolize(queries, deadline_ns);
  CodeOutsideOfFiles outside(name_code);
  auto query = query_of_frame.begin();
  for (NamedStack& stack : *stacks) {
    for (const NativeFrame& frame : stack.native.frames) {
      stack.locations.push_back(*query == kNoQuery ? outside.At(frame.lookup_avma()) : locations[*query]);
      ++query;
    }
    NameByCalls(capture, &stack);
  }
}

void NamingStage::NameByCalls(const Capture& capture, NamedStack* stack) {
  const std::vector<NativeFrame>& frames = stack->native.frames;
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    const NativeFrame& caller = frames[i + 1];
    const bool behind_gap = stack->native.omitted_bytes > 0 && i + 1 == stack->native.omitted_before;
    const bool called =
        caller.lookup_avma() != caller.pc_avma && !behind_gap && frames[i].origin != FrameOrigin::kSignalFrame;
    if (!stack->locations[i]->frames.empty() || frames[i].is_signal_trampoline || !called) continue;
    const Mapping* own = capture.map->Find(frames[i].lookup_avma());
    const Mapping* from = capture.map->Find(caller.lookup_avma());
    const bool between_files = own != nullptr && from != nullptr && own->module != nullptr && from->module != nullptr &&
                               own->module != from->module;
    if (!between_files) continue;
    std::string function = imported_calls_.Name(from->module, caller.pc_avma - from->bias);
    // The worker alone reads mangled names: the author of a hostile file may have written them.
    if (function.empty() || function.starts_with("_Z") || function.starts_with("_R")) continue;
    auto location = std::make_shared<SourceLocation>();
    location->frames.push_back({.function = ToValidUtf8(function)});
    stack->locations[i] = std::move(location);
  }
}

std::vector<std::string> NamingStage::NameVariables(const std::vector<DataAddress>& addresses, int64_t deadline_ns) {
  std::vector<AddressQuery> queries;
  for (const DataAddress& address : addresses) queries.push_back({address.module, address.svma});
  return symbolizer_->NameVariables(queries, deadline_ns);
}

}  // namespace stackd

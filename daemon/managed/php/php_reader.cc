#include "daemon/managed/php/php_reader.h"

#include <string>
#include <string_view>

#include "daemon/managed/lined_frames.h"
#include "stackd/php_trace.h"

namespace stackd {
namespace {

std::string VersionName(uint64_t version_id) {
  if (version_id == 0) return "PHP";
  return "PHP " + std::to_string(version_id / 10000) + "." + std::to_string(version_id / 100 % 100) + "." +
         std::to_string(version_id % 100);
}

// The name of an anonymous class goes on behind a NUL, with its place.
std::string_view Shown(std::string_view class_name) { return class_name.substr(0, class_name.find('\0')); }

std::string FunctionName(const ManagedSymbol& symbol) {
  if (!symbol.function.empty()) {
    const std::string function(symbol.function);
    return symbol.table.empty() ? function : std::string(Shown(symbol.table)) + "::" + function;
  }
  switch (symbol.table_format) {
    case STACKD_PHP_INCLUDED:
      return "{include}";
    case STACKD_PHP_EVALUATED:
      return "{eval}";
    default:
      return "{main}";
  }
}

}  // namespace

void PhpReader::Read(const RuntimeInput& input, ManagedFacts* facts) {
  static constexpr LinedRuntime kPhp = {
      .runtime = STACKD_RUNTIME_PHP,
      .language = Language::kPhp,
      .interpreter_function = "execute_ex",
      .version_name = VersionName,
      .function_name = FunctionName,
      .unknown_version =
          "this stackd does not know the frames of this version, or of a build with thread safety: its "
          "stacks show C functions alone",
  };
  AddLinedFrames(input, kPhp, facts);
}

}  // namespace stackd

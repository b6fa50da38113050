#include "daemon/assemble/unread_runtimes.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

namespace stackd {
namespace {

struct UnreadRuntime {
  std::string_view file;  // what the name of its file begins with, before a version or an ending
  std::string_view name;
  bool makes_code = false;       // in place of being interpreted
  std::string_view perf_map_by;  // how it is told to name that code; empty: it cannot be
};

constexpr auto kUnread = std::to_array<UnreadRuntime>({
    {.file = "libR", .name = "R"},
    {.file = "perl", .name = "Perl"},
    {.file = "libperl", .name = "Perl"},
    {.file = "lua", .name = "Lua"},
    {.file = "liblua", .name = "Lua"},
    {.file = "luajit", .name = "LuaJIT"},
    {.file = "libluajit", .name = "LuaJIT"},
    {.file = "libguile", .name = "Guile"},
    {.file = "libtcl", .name = "Tcl"},
    {.file = "liboctinterp", .name = "Octave"},
    {.file = "libswipl", .name = "SWI-Prolog"},
    {.file = "beam", .name = "Erlang", .makes_code = true, .perf_map_by = "+JPperf map"},
    {.file = "libcoreclr", .name = ".NET", .makes_code = true, .perf_map_by = "DOTNET_PerfMapEnabled=1"},
    {.file = "libmonosgen", .name = "Mono", .makes_code = true, .perf_map_by = "--jitmap"},
    {.file = "mono", .name = "Mono", .makes_code = true, .perf_map_by = "--jitmap"},
    {.file = "deno", .name = "Deno", .makes_code = true, .perf_map_by = "--v8-flags=--perf-basic-prof"},
    {.file = "bun", .name = "Bun", .makes_code = true},
    {.file = "libmozjs", .name = "SpiderMonkey", .makes_code = true},
    {.file = "libjavascriptcoregtk", .name = "JavaScriptCore", .makes_code = true},
    {.file = "libjulia", .name = "Julia", .makes_code = true},
    {.file = "sbcl", .name = "SBCL", .makes_code = true},
});

// Whether `module` is `file` with nothing but a version and an ending: "lua" is "lua5.4", and not "luatex".
bool IsFile(std::string_view module, std::string_view file) {
  if (!module.starts_with(file)) return false;
  return module.size() == file.size() || std::string_view("0123456789.-").contains(module[file.size()]);
}

// Erlang and .NET have their code in a file in memory, which they map twice: to write and to run.
bool IsCodeWithoutName(const v1::Frame& frame) {
  return frame.function().empty() && (frame.module() == "[anon]" || frame.module().starts_with("memfd:"));
}

std::string NoteOn(const UnreadRuntime& runtime, const std::string& module) {
  std::string note = std::string(runtime.name) + ": stackd does not read its functions; ";
  if (!runtime.makes_code) return note + "frames in " + module + " are those of its interpreter";
  if (runtime.perf_map_by.empty()) return note + "code outside all files may be theirs";
  return note + "with " + std::string(runtime.perf_map_by) + " it writes their names where dumps find them";
}

}  // namespace

std::vector<std::string> NotesOnUnreadRuntimes(const v1::Dump& dump, const std::vector<int>& threads_of_stack) {
  std::set<std::string> modules;
  bool has_code_without_name = false;
  for (int i = 0; i < dump.stacks_size(); ++i) {
    if (threads_of_stack[i] == 0) continue;
    for (const v1::Frame& frame : dump.stacks(i).frames()) {
      if (frame.replaced()) continue;
      modules.insert(frame.module());
      has_code_without_name = has_code_without_name || IsCodeWithoutName(frame);
    }
  }
  std::vector<std::string> notes;
  std::set<std::string_view> named;
  for (const UnreadRuntime& runtime : kUnread) {
    if (runtime.makes_code && !has_code_without_name) continue;
    const auto module = std::ranges::find_if(modules, [&](const auto& name) { return IsFile(name, runtime.file); });
    if (module != modules.end() && named.insert(runtime.name).second) notes.push_back(NoteOn(runtime, *module));
  }
  return notes;
}

}  // namespace stackd

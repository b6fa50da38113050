#include "daemon/symbolize/test_programs.h"

#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>
#include <utility>

namespace stackd {
namespace {

struct CommandResult {
  int status;
  std::string output;
};

CommandResult Shell(const std::string& command) {
  std::string in_folder = "cd '" + TestFolder() + "' && { " + command + "\n}";
  FILE* pipe = popen(in_folder.c_str(), "re");
  CommandResult result{-1, {}};
  char chunk[65536];
  for (size_t n; (n = fread(chunk, 1, sizeof(chunk), pipe)) > 0;) result.output.append(chunk, n);
  result.status = pclose(pipe);
  return result;
}

std::string AddressFile(const std::vector<uint64_t>& svmas) {
  std::ostringstream text;
  for (uint64_t svma : svmas) text << "0x" << std::hex << svma << "\n";
  return WriteFile("addresses", text.str());
}

// "/path/file.c:12:3" or "file.c:12 (discriminator 2)"
void ParseLine(std::string text, SourceFrame* frame) {
  text = text.substr(0, text.find(" (discriminator"));
  size_t colon = text.find(':');
  if (colon == std::string::npos) return;
  frame->line = atoi(text.c_str() + colon + 1);
  if (frame->line > 0) frame->file = text.substr(0, colon);
}

bool IsAddress(const std::string& line) {
  return line.starts_with("0x") && line.find_first_not_of("0123456789abcdef", 2) == std::string::npos;
}

// Blocks: the address, then function and file:line in turns.
Oracle ParseBlocks(const std::string& output, size_t expected) {
  Oracle oracle;
  std::istringstream in(output);
  std::string line;
  bool expect_function = true;
  while (std::getline(in, line)) {
    if (line.empty()) continue;
    if (IsAddress(line)) {
      oracle.emplace_back();
      expect_function = true;
    } else if (oracle.empty()) {
      continue;
    } else if (expect_function) {
      oracle.back().push_back({.function = line.starts_with("??") ? "" : line, .file = {}});
      expect_function = false;
    } else {
      ParseLine(line, &oracle.back().back());
      expect_function = true;
    }
  }
  EXPECT_EQ(oracle.size(), expected);
  oracle.resize(expected);
  return oracle;
}

}  // namespace

const std::string& TestFolder() {
  static const std::string folder = [] {
    const char* base = getenv("TEST_TMPDIR");
    std::string path = std::string(base != nullptr ? base : "/tmp") + "/symbolize.XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    return path;
  }();
  return folder;
}

std::string WriteFile(const std::string& name, const std::string& text) {
  std::string path = TestFolder() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string RunCommand(const std::string& command) {
  CommandResult result = Shell(command);
  EXPECT_EQ(result.status, 0) << command << "\n" << result.output;
  return result.output;
}

bool HaveTool(const std::string& name) { return Shell("command -v " + name + " >/dev/null").status == 0; }

const std::string& SampleSource() {
  static const std::string source = R"(
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace store {
namespace {
template <class F>
__attribute__((noinline)) int Apply(F f, int x) { return f(x) + 1; }

int Twice(int x) { return x * 2 + std::abs(x); }
}  // namespace

class Table {
 public:
  explicit Table(int n) {
    for (int i = 0; i < n; ++i) rows_.push_back(Twice(i));
  }
  __attribute__((noinline)) int Sum() const {
    int sum = 0;
    for (int row : rows_) sum += row;
    return sum;
  }
  __attribute__((noinline)) int Largest() const {
    auto less = [](int a, int b) { return a % 100 < b % 100; };
    return *std::max_element(rows_.begin(), rows_.end(), less);
  }
  __attribute__((noinline)) int Call(int v) const {
    auto add = [v, this](int y) __attribute__((noinline)) { return y + v + static_cast<int>(rows_.size()); };
    return Apply(add, v);
  }

 private:
  std::vector<int> rows_;
};

template <class T>
__attribute__((noinline)) T First(std::vector<T> values) {
  std::sort(values.begin(), values.end(), [](T a, T b) { return a > b; });
  if (values.empty()) std::abort();
  return values.front();
}
}  // namespace store

extern "C" __attribute__((noinline)) int plain_c(int x) {
  auto inner = [&](int q) __attribute__((always_inline)) { return q * x + 2; };
  return inner(x) + inner(x + 1);
}

static __attribute__((noinline)) int only_here(int x) { return plain_c(x) + 1; }

int main(int argc, char** argv) {
  store::Table table(argc * 10);
  int result = table.Sum() + table.Largest() + table.Call(argc) + only_here(argc);
  result += store::First<int>({1, 2, argc}) + static_cast<int>(store::First<double>({1.5, 2.5}));
  return std::printf("%d %s\n", result, argv[0]) > 0 ? 0 : 1;
}
)";
  return source;
}

std::vector<uint64_t> TextAddresses(const std::string& file, uint64_t step_bytes) {
  std::istringstream in(
      RunCommand("readelf -SW '" + file +
                 "' | sed -n 's/.* \\.text *[A-Z]* *\\([0-9a-f]*\\) [0-9a-f]* \\([0-9a-f]*\\) .*/\\1 \\2/p'"));
  uint64_t begin = 0, size = 0;
  in >> std::hex >> begin >> size;
  EXPECT_GT(size, 0u) << file;
  std::vector<uint64_t> svmas;
  for (uint64_t offset = 0; offset < size; offset += step_bytes) svmas.push_back(begin + offset);
  return svmas;
}

Oracle AskLlvmSymbolizer(const std::string& file, const std::vector<uint64_t>& svmas) {
  return ParseBlocks(RunCommand("llvm-symbolizer --addresses --obj='" + file + "' < '" + AddressFile(svmas) + "'"),
                     svmas.size());
}

Oracle AskAddr2line(const std::string& tool, const std::string& file, const std::vector<uint64_t>& svmas) {
  return ParseBlocks(RunCommand(tool + " -aifC -e '" + file + "' < '" + AddressFile(svmas) + "'"), svmas.size());
}

std::string BareName(std::string name) {
  for (const char* suffix : {" [clone", " (.", ".cold", ".part.", ".isra.", ".constprop."})
    name = name.substr(0, name.find(suffix));
  // Tools differ in the blanks around operators' names.
  size_t operator_at = name.find("::operator");
  if (operator_at != std::string::npos) name = name.substr(0, operator_at + strlen("::operator"));
  for (auto [from, to] :
       {std::pair("(anonymous namespace)", "anonymous"), {"'lambda'", "{lambda}"}, {"#1}", "}"}, {"#2}", "}"}}) {
    for (size_t at; (at = name.find(from)) != std::string::npos;) name.replace(at, strlen(from), to);
  }
  std::string bare;
  int depth = 0;
  for (char c : name) {
    if (c == '(' || c == '<') depth++;
    if (depth == 0) bare += c;
    if (c == ')' || c == '>') depth--;
  }
  if (bare.ends_with(" const")) bare.resize(bare.size() - 6);
  return bare.substr(bare.rfind(' ') + 1);  // without the type that it returns
}

}  // namespace stackd

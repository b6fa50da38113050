// Programs that tests compile, and what other tools say about their addresses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/capture/source_frame.h"

namespace stackd {

// A folder of this test, made on first use.
const std::string& TestFolder();
std::string WriteFile(const std::string& name, const std::string& text);
std::string ReadFile(const std::string& path);

// Runs a shell command in the test's folder; its output, or nullopt-like empty string and a test failure if it fails.
std::string RunCommand(const std::string& command);
bool HaveTool(const std::string& name);

// A C++ program of one file with inlined functions, templates, lambdas, anonymous namespaces and static functions.
const std::string& SampleSource();

// svma of every `step_bytes`th byte of .text.
std::vector<uint64_t> TextAddresses(const std::string& file, uint64_t step_bytes = 1);

// What an outside tool says: frames innermost first; "" and 0 where it does not know.
using Oracle = std::vector<std::vector<SourceFrame>>;
Oracle AskLlvmSymbolizer(const std::string& file, const std::vector<uint64_t>& svmas);
Oracle AskAddr2line(const std::string& tool, const std::string& file, const std::vector<uint64_t>& svmas);

// "ns::f<int>(int) const" -> "ns::f": what names of all tools have in common.
std::string BareName(std::string name);

}  // namespace stackd

// Numbers, times and lists as an operator reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// "1,004"
std::string Grouped(int64_t number);

// "1,004 threads", "1 thread"
std::string Count(int64_t number, std::string_view noun);

// "41 us", "9.8 ms", "1.2 s"
std::string InWords(const google::protobuf::Duration& duration);

// "2026-11-21 03:15:02 UTC"
std::string InWords(const google::protobuf::Timestamp& time);

// Sorted numbers as ranges: "4712-5711, 5800", cut with "and 12 more" where it grows too long for a line.
std::string Ranges(std::vector<uint64_t> numbers);

// "Python"; "native code" where it is not known.
std::string LanguageInWords(v1::Language language);

// What the runtime of a language calls that which it schedules by itself: "goroutine".
std::string_view TaskNoun(v1::Language language);

// "worker (998), worker-io (2)", cut likewise; a single text stands without its count.
struct Counted {
  std::string text;
  int count;
};
std::string CountedList(const std::vector<Counted>& items);

}  // namespace stackd

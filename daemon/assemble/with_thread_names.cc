#include "daemon/assemble/with_thread_names.h"

#include <algorithm>
#include <charconv>

namespace stackd {

std::string WithThreadNames(std::string_view sentence, const std::vector<ThreadCapture>& threads) {
  constexpr std::string_view kThread = "thread ";
  std::string result;
  for (size_t at; (at = sentence.find(kThread)) != std::string_view::npos;) {
    at += kThread.size();
    result += sentence.substr(0, at);
    sentence.remove_prefix(at);
    int32_t tid = 0;
    const auto [end, error] = std::from_chars(sentence.data(), sentence.data() + sentence.size(), tid);
    const auto thread = std::ranges::find(threads, tid, &ThreadCapture::tid);
    if (error != std::errc() || thread == threads.end() || thread->name.empty()) continue;
    const auto digits = static_cast<size_t>(end - sentence.data());
    result += thread->name + " (tid " + std::string(sentence.substr(0, digits)) + ")";
    sentence.remove_prefix(digits);
  }
  return result += sentence;
}

}  // namespace stackd

// One unit of a program with much debug information: make_debug_data.sh links hundreds of copies of it.
#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

typedef int Next(int depth);

namespace {

// Each Step<N> is a frame, and brings types and inlined functions of its own.
template <int N>
struct Record {
  std::map<int, std::vector<std::string>> rows;
  std::unordered_map<std::string, std::variant<int, double, std::string>> fields;
  std::set<std::pair<int, int>> edges;
  std::deque<std::function<int(int)>> pending;
};

template <int N>
[[gnu::noinline]] int Step(Next* next, int depth) {
  Record<N> record;
  record.rows[N].push_back(std::to_string(depth));
  record.fields["depth"] = depth;
  record.edges.emplace(N, depth);
  record.pending.push_back([&](int x) { return x + N; });
  std::list<int> order{N, depth, 3};
  order.sort([](int a, int b) { return a > b; });
  int result = record.pending.front()(order.front());
  if constexpr (N > 0) {
    result += Step<N - 1>(next, depth);
  } else {
    if (std::regex_match(record.rows[N][0], std::regex("[a-z]+"))) result++;
    result += next(depth);
  }
  std::ostringstream text;
  text << result << record.rows.size();
  return static_cast<int>(text.str().size()) + result;
}

}  // namespace

extern "C" int bench_unit(Next* next, int depth) { return Step<8>(next, depth) + 1; }

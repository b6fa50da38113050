#include "daemon/config/units.h"

#include <charconv>
#include <span>
#include <string>

namespace stackd {
namespace {

struct Unit {
  std::string_view name;
  int64_t factor;
};

constexpr Unit kSizes[] = {{"", 1},       {"B", 1},          {"KiB", 1ll << 10},   {"MiB", 1ll << 20}, {"GiB", 1ll << 30},
                           {"KB", 1'000}, {"MB", 1'000'000}, {"GB", 1'000'000'000}};
constexpr Unit kDurations[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"min", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};

Result<int64_t> Parse(std::string_view text, std::span<const Unit> units, std::string_view example) {
  auto bad = [&] {
    return Error(Code::kInvalidArgument,
                 "\"" + std::string(text) + "\" is not understood: write it like " + std::string(example));
  };
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return bad();
  std::string_view name = text.substr(static_cast<size_t>(end - text.data()));
  for (const Unit& unit : units) {
    int64_t product;
    if (unit.name == name && !__builtin_mul_overflow(number, unit.factor, &product)) return product;
  }
  return bad();
}

}  // namespace

Result<int64_t> ParseSizeBytes(std::string_view text) { return Parse(text, kSizes, "256MiB"); }

Result<int64_t> ParseDurationMs(std::string_view text) { return Parse(text, kDurations, "30d, 12h, 15m or 90s"); }

}  // namespace stackd

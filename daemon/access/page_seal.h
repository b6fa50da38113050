// Binds a page token to the caller and the list that it was given for.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "daemon/base/result.h"

namespace stackd {

// The key lives as long as the daemon. After a restart tokens are invalid, and callers start their list again.
class PageSeal {
 public:
  PageSeal();

  std::string Close(std::string_view caller, std::string_view list, const std::string& token) const;
  // Returns the token that was closed. Fails with BAD_PAGE_TOKEN for another caller, another list or a changed token.
  Result<std::string> Open(std::string_view caller, std::string_view list, const std::string& sealed) const;

 private:
  std::string Mac(std::string_view caller, std::string_view list, std::string_view token) const;

  std::array<unsigned char, 32> key_;
};

}  // namespace stackd

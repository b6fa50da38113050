// The files of the page, as they were built (client/page/dist).
#pragma once

#include <span>
#include <string_view>

namespace stackd {

struct PageFile {
  std::string_view path;  // "/page.js"; "/" is index.html
  std::string_view content_type;
  std::string_view bytes;
};

// They live as long as the program.
std::span<const PageFile> PageFiles();

}  // namespace stackd

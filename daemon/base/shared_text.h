// An immutable text that its copies share: the names of functions and files, which thousands of frames have in common.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace stackd {

// Copies may be used by different threads.
class SharedText {
 public:
  SharedText() = default;
  // Implicit, as for std::string: frames are given their names where they are made.
  SharedText(std::string text) : text_(text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text))) {}
  SharedText(const char* text) : SharedText(std::string(text)) {}

  const std::string& str() const {
    static const std::string kEmpty;
    return text_ == nullptr ? kEmpty : *text_;
  }
  operator const std::string&() const { return str(); }
  operator std::string_view() const { return str(); }

  bool empty() const { return text_ == nullptr; }
  size_t size() const { return str().size(); }

  // Equal for copies of each other, and for nothing else that lives. nullptr: empty.
  const void* identity() const { return text_.get(); }

  // What this copy has of the memory that they share: of all copies together it is the whole.
  size_t SharedBytes() const {
    return empty() ? 0 : (sizeof(*text_) + text_->capacity()) / static_cast<size_t>(text_.use_count());
  }

  friend bool operator==(const SharedText& a, const SharedText& b) { return a.text_ == b.text_ || a.str() == b.str(); }
  // A template, because else a literal could become either of the two.
  template <std::convertible_to<std::string_view> Text>
    requires(!std::same_as<Text, SharedText>)
  friend bool operator==(const SharedText& a, const Text& b) {
    return a.str() == std::string_view(b);
  }

 private:
  std::shared_ptr<const std::string> text_;  // nullptr: empty
};

}  // namespace stackd

#include "daemon/analyze/names/function_name.h"

#include <gtest/gtest.h>

#include <utility>

namespace stackd {
namespace {

TEST(PlainFunction, LeavesTheNameAlone) {
  const std::pair<const char*, const char*> cases[] = {
      {"main", "main"},
      {"f(int)", "f"},
      {"bool Queue<int>::Pop(int, long) const [clone .cold]", "Queue::Pop"},
      {"int sum<int>(int)", "sum"},
      {"std::vector<std::pair<int, char>, std::allocator<std::pair<int, char> > >::push_back(std::pair<int, char>&&)",
       "std::vector::push_back"},
      {"(anonymous namespace)::f(int)", "(anonymous namespace)::f"},
      {"app::(anonymous namespace)::Worker::Run() &", "app::(anonymous namespace)::Worker::Run"},
      {"std::function<void (int)>::operator()(int) const", "std::function::operator()"},
      {"bool operator< <int>(A<int> const&, A<int> const&)", "operator<"},
      {"std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)", "std::operator<<"},
      {"A::operator->() const", "A::operator->"},
      {"A::operator bool() const", "A::operator bool"},
      {"operator new(unsigned long)", "operator new"},
      {"operator delete[](void*)", "operator delete[]"},
      {"A::operator[](int)", "A::operator[]"},
      {"operators(int)", "operators"},
      {"f(int)::{lambda(char)#2}::operator()(char) const", "f::{lambda}::operator()"},
      {"f(int)::<lambda(char)>::operator()(char) const", "f::{lambda}::operator()"},
      {"std::string f[abi:cxx11](int)", "f"},
      {"void std::__invoke_impl<void, void (*)(int), int>(std::__invoke_other, void (*&&)(int), int&&)",
       "std::__invoke_impl"},
      {"f.constprop.0", "f"},
      {"T max(T, T) [with T = int]", "max"},
      {"app::run::h0123456789abcdef", "app::run"},
      {"app::run::{{closure}}", "app::run::{closure}"},
      {"app::run::{closure#3}", "app::run::{closure}"},
      {"<alloc::vec::Vec<T> as core::ops::Drop>::drop", "<alloc::vec::Vec<T> as core::ops::Drop>::drop"},
      {"core::ptr::drop_in_place::<alloc::string::String>", "core::ptr::drop_in_place"},
      {"core::ptr::drop_in_place<alloc::string::String>", "core::ptr::drop_in_place"},
      {"core::fmt::num::<impl core::fmt::Display for i32>::fmt", "core::fmt::num::<impl core::fmt::Display for i32>::fmt"},
      {"main.(*T).Run", "main.(*T).Run"},
      {"", ""},
      {"(", "("},
      {"<<<<", "<<<<"},
      {"a<b(c{d[e", "a"},
      {"a>b)c}d]e", "a>b)c}d]e"},
  };
  for (const auto& [name, plain] : cases) EXPECT_EQ(PlainFunction(name), plain) << name;
}

TEST(PlainFunction, IsBoundedForNamesThatNoCompilerMakes) {
  for (char c : {'<', '(', '{', '[', ' ', ':', '>'}) {
    EXPECT_LE(PlainFunction(std::string(4096, c)).size(), 4096u);
    std::string mixed;
    for (int i = 0; i < 4096; ++i) mixed += i % 2 == 0 ? c : '<';
    EXPECT_LE(PlainFunction(mixed).size(), 2 * 4096u);
  }
}

TEST(PlainLibcFunction, IsTheNameThatTheProgramCalled) {
  const std::pair<const char*, const char*> cases[] = {
      {"__memcpy_avx_unaligned_erms", "memmove"},
      {"__memmove_avx512_unaligned_erms", "memmove"},
      {"__memmove_sse2_unaligned", "memmove"},
      {"__memset_evex_unaligned_erms", "memset"},
      {"__strlen_avx2", "strlen"},
      {"__strlen_sse42", "strlen"},
      {"__strcmp_sse2_unaligned", "strcmp"},
      {"__sin_fma", "sin"},
      {"__GI_raise", "raise"},
      {"__GI___libc_free", "free"},
      {"__libc_malloc", "malloc"},
      {"cfree", "free"},
      {"__libc_message", "__libc_message"},
      {"my_avx2_kernel", "my"},
      {"avx2", "avx2"},
      {"_avx2", "_avx2"},
      {"", ""},
  };
  for (const auto& [name, plain] : cases) EXPECT_EQ(PlainLibcFunction(name), plain) << name;
}

}  // namespace
}  // namespace stackd

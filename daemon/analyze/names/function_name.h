// A function's name as a person says it, and as it stays from build to build.
#pragma once

#include <string>
#include <string_view>

namespace stackd {

// Cuts what differs between builds that are the same program to a person. These are " [clone …]", ".constprop.N",
// ".isra.N", ".part.N", ".cold", ".lto_priv.N" and Rust's "::h<16 hex digits>" at the end.
std::string_view WithoutBuildMarks(std::string_view function);

// "Queue::Pop" for "bool Queue<int>::Pop(int, long) const [clone .cold]": without return type, parameters, template
// arguments, qualifiers, marks of clones, Rust's hash. "{lambda}" for any lambda. The name as it is if nothing is left.
std::string PlainFunction(std::string_view function);

// The name behind the variants that C libraries have for processors and for their own calls: "memmove" for
// "__memcpy_avx_unaligned_erms", "free" for "__GI___libc_free".
std::string PlainLibcFunction(std::string_view function);

}  // namespace stackd

"""Debian's rules_cc, made loadable by Debian's Bazel."""

def _debian_rules_cc_impl(ctx):
    ctx.execute(["cp", "-rL", "/usr/share/bazel/rules/cc/.", "."])

    # use_cpp_toolchain() appeared after Bazel 4.2.3; what it returns is this list.
    result = ctx.execute(["grep", "-rl", "use_cpp_toolchain", "cc"])
    for path in result.stdout.strip().split("\n"):
        text = ctx.read(path)
        text = text.replace(", \"use_cpp_toolchain\"", "")
        text = text.replace("use_cpp_toolchain()", "[\"@bazel_tools//tools/cpp:toolchain_type\"]")
        ctx.file(path, text)

debian_rules_cc = repository_rule(
    implementation = _debian_rules_cc_impl,
    local = True,
)

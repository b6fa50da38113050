"""A C or C++ library installed by Debian, as a Bazel target.

    system_library(name = "sqlite", packages = ["sqlite3"])

gives `@sqlite//:sqlite`, which links as the program that uses it is linked, with flags from pkg-config. With
`static = True` (the default) `@sqlite//:static` links the archives instead: for a program linked with `-static`.
"""

_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "{name}",
    copts = {copts},
    defines = {defines},
    linkopts = {shared},
)
{static}
"""

_STATIC = """
cc_library(
    name = "static",
    defines = {defines},
    linkopts = {linkopts},
)
"""

def _pkg_config(ctx, args):
    if not ctx.attr.packages:
        return []
    result = ctx.execute(["pkg-config"] + args + ctx.attr.packages)
    if result.return_code != 0:
        fail("%s: %s\nRun deploy/install-deps.sh." % (ctx.name, result.stderr))
    return [word for word in result.stdout.replace("\n", " ").split(" ") if word]

def _system_library_impl(ctx):
    defines = ctx.attr.defines + [
        flag[2:]
        for flag in _pkg_config(ctx, ["--cflags-only-other"])
        if flag.startswith("-D")
    ]
    shared = []
    static = ""
    if ctx.attr.link:
        shared = _pkg_config(ctx, ["--libs"]) + ["-l" + lib for lib in ctx.attr.extra_libs]
        if ctx.attr.static:
            # The order of the archives of gRPC and abseil is not a simple list: they refer to each other.
            libs = ["-l" + lib for lib in ctx.attr.extra_libs] + _pkg_config(ctx, ["--libs", "--static"]) + [
                "-l" + lib
                for lib in ctx.attr.extra_static_libs
            ]
            static = _STATIC.format(
                defines = repr(defines),
                linkopts = repr(["-Wl,--start-group"] + libs + ["-Wl,--end-group"]),
            )
    ctx.file("BUILD", _BUILD.format(
        name = ctx.name,
        copts = "[]",
        defines = repr(defines),
        shared = repr(shared),
        static = static,
    ))

system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "packages": attr.string_list(doc = "pkg-config names"),
        "extra_libs": attr.string_list(doc = "libraries without a pkg-config file"),
        "extra_static_libs": attr.string_list(doc = "what the archives need and their pkg-config files do not say"),
        "defines": attr.string_list(),
        "link": attr.bool(default = True, doc = "False: headers only"),
        "static": attr.bool(default = True),
    },
    local = True,
)

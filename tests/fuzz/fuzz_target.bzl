"""A fuzz target as a test: its corpus, and some mutations of each file of it."""

load("@rules_cc//cc:defs.bzl", "cc_test")

def fuzz_target(name, srcs, deps, mutations = 2000):
    """Files of the corpus are in the folder NAME_corpus.

    Args:
      name: of the test; NAME.cc or another file in srcs defines LLVMFuzzerTestOneInput.
      srcs: of the target.
      deps: of the target.
      mutations: of each file of the corpus.
    """
    corpus = name + "_corpus"
    cc_test(
        name = name,
        size = "small",
        srcs = srcs + ["//tests/fuzz:standalone_driver.cc"],
        args = [
            "--mutations=%d" % mutations,
            "%s/%s" % (native.package_name(), corpus),
        ],
        data = native.glob([corpus + "/**"]),
        deps = deps,
    )

"""C++ code from .proto files, by Debian's protoc: a genrule, since rules_proto would build protoc itself."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def cc_proto(name, srcs, protos, include = None, descriptors = None, services = False, deps = [], **kwargs):
    """Compiles protos into a library whose headers are included by the protos' own paths.

    Args:
      name: the library.
      srcs: labels of the .proto files.
      protos: the same files as they are imported ("stackd/v1/stackd.proto").
      include: the folder that those paths start from.
      descriptors: label of a file of descriptors that has the protos, in place of `include`.
      services: also generate gRPC services and stubs.
      deps: cc_proto libraries that `srcs` import.
      **kwargs: passed to the library.
    """
    endings = [".pb"] + ([".grpc.pb"] if services else [])
    stems = [proto[:-len(".proto")] + ending for proto in protos for ending in endings]
    grpc = "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin --grpc_out=$(RULEDIR)" if services else ""
    if descriptors:
        srcs = srcs + [descriptors]
        sources = "--descriptor_set_in=$(location %s)" % descriptors
    else:
        srcs = srcs + ["@google_protos//:protos"]
        sources = "-I%s -Iexternal/google_protos -I/usr/include" % include
    native.genrule(
        name = name + "_code",
        srcs = srcs,
        outs = [stem + ending for stem in stems for ending in (".h", ".cc")],
        cmd = "protoc %s --cpp_out=$(RULEDIR) %s %s" % (sources, grpc, " ".join(protos)),
    )
    cc_library(
        name = name,
        srcs = [stem + ".cc" for stem in stems],
        hdrs = [stem + ".h" for stem in stems],
        copts = ["-w"],
        includes = ["."],
        deps = deps,
        **kwargs
    )

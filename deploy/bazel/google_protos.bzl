"""Published protos that no Debian package carries as source: google/rpc (error details), and grpc/health/v1."""

_VERSION = "1.76.0"

_BUILD = """
package(default_visibility = ["//visibility:public"])

filegroup(
    name = "protos",
    srcs = glob(["google/rpc/*.proto", "google/api/*.proto", "grpc/health/v1/*.proto"]),
)
"""

def _google_protos_impl(ctx):
    result = ctx.execute([
        "python3",
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--dest",
        "wheel",
        "googleapis-common-protos==" + _VERSION,
    ])
    if result.return_code != 0:
        fail("googleapis-common-protos: " + result.stderr)
    for wheel in ctx.path("wheel").readdir():
        ctx.execute(["python3", "-m", "zipfile", "-e", str(wheel), "."])
    ctx.delete("wheel")
    ctx.symlink("/usr/share/grpc-proto/grpc/health", "grpc/health")
    ctx.file("BUILD", _BUILD)

google_protos = repository_rule(implementation = _google_protos_impl)

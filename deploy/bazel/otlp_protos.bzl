"""The published protos of OTLP logs, as descriptors: `@otlp_protos//:descriptors.binpb` for protoc's --descriptor_set_in.

From the wheel opentelemetry-proto, which holds generated Python code and in it the descriptors of the .proto files as they
were published. (The .proto files themselves are in a crate and a jar: this build needs neither cargo nor maven for them.)
"""

_VERSION = "1.45.2"
_SHA256 = "03a7ca1b43f89fd5b965d5975902bb2515c0c86e2428b456836e9a6149c6235a"

# A FileDescriptorSet is its files, each with the tag of field 1 and its length before it.
_EXTRACT = """
import ast, sys

def varint(value):
    encoded = b""
    while value > 0x7f:
        encoded += bytes([value & 0x7f | 0x80])
        value >>= 7
    return encoded + bytes([value])

with open("descriptors.binpb", "wb") as out:
    for path in sys.argv[1:]:
        tree = ast.parse(open(path).read())
        files = [node.args[0].value for node in ast.walk(tree)
                 if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile"]
        assert len(files) == 1, path
        out.write(b"\\x0a" + varint(len(files[0])) + files[0])
"""

_FILES = [
    "opentelemetry/proto/%s_pb2.py" % name
    for name in [
        "common/v1/common",
        "resource/v1/resource",
        "logs/v1/logs",
        "collector/logs/v1/logs_service",
    ]
]

def _run(ctx, arguments):
    result = ctx.execute(arguments)
    if result.return_code != 0:
        fail("opentelemetry-proto: " + result.stderr)

def _otlp_protos_impl(ctx):
    ctx.file("requirements.txt", "opentelemetry-proto==%s --hash=sha256:%s\n" % (_VERSION, _SHA256))
    pip = ["python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    _run(ctx, pip + ["--no-deps", "--require-hashes", "--dest", "wheel", "--requirement", "requirements.txt"])
    for wheel in ctx.path("wheel").readdir():
        _run(ctx, ["python3", "-m", "zipfile", "-e", str(wheel), "."])
    _run(ctx, ["python3", "-c", _EXTRACT] + _FILES)
    for path in ["wheel", "opentelemetry"]:
        ctx.delete(path)
    ctx.file("BUILD", "exports_files([\"descriptors.binpb\"])\n")

otlp_protos = repository_rule(implementation = _otlp_protos_impl)

"""Builds the wheel: the package, the agent's library and a .pth file that loads it in every Python of the environment.

    pip install agent/python/            or    python3 agent/python/build_wheel.py FOLDER

The library is STACKD_AGENT_LIBRARY, or what Bazel built (bazel build -c opt //agent:libstackd_agent.so).
"""

import base64
import hashlib
import os
import pathlib
import re
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# One binary for every Python: it knows their layouts by itself, and needs glibc 2.34 alone.
TAG = "py3-none-linux_x86_64"
# Runs in every Python that starts there, so nothing may come of it if the package is broken or half removed.
PTH = "import sys; exec('try: import stackd._load\\nexcept Exception: pass')\n"


def version():
    return re.search(r'__version__ = "(.+)"', (HERE / "stackd/__init__.py").read_text(encoding="utf-8"))[1]


def library():
    path = pathlib.Path(os.environ.get("STACKD_AGENT_LIBRARY", ROOT / "bazel-bin/agent/libstackd_agent.so"))
    if not path.exists():
        raise SystemExit(f"{path} is missing: bazel build -c opt //agent:libstackd_agent.so")
    return path


def metadata():
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    return (f"Metadata-Version: 2.1\nName: stackd\nVersion: {version()}\nRequires-Python: >=3.8\n"
            "Summary: Stack dumps of hung and crashed processes, from outside\n"
            f"Description-Content-Type: text/markdown\n\n{readme}")


def wheel_file():
    return f"Wheel-Version: 1.0\nGenerator: stackd\nRoot-Is-Purelib: false\nTag: {TAG}\n"


def contents():
    """(name in the wheel, bytes) of every file but RECORD."""
    for path in sorted((HERE / "stackd").glob("*.py")):
        yield f"stackd/{path.name}", path.read_bytes()
    yield "stackd/libstackd_agent.so", library().read_bytes()
    yield "stackd.pth", PTH.encode()
    info = f"stackd-{version()}.dist-info"
    yield f"{info}/METADATA", metadata().encode()
    yield f"{info}/WHEEL", wheel_file().encode()


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """What PEP 517 asks for. Equal inputs give equal bytes."""
    del config_settings, metadata_directory
    name = f"stackd-{version()}-{TAG}.whl"
    record = ""
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for inside, data in contents():
            record += record_line(inside, data)
            wheel.writestr(zipfile.ZipInfo(inside), data, zipfile.ZIP_DEFLATED)
        inside = f"stackd-{version()}.dist-info/RECORD"
        wheel.writestr(zipfile.ZipInfo(inside), record + f"{inside},,\n", zipfile.ZIP_DEFLATED)
    return name


def main():
    print(pathlib.Path(sys.argv[1]) / build_wheel(sys.argv[1]))


if __name__ == "__main__":
    main()

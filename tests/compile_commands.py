"""Writes compile_commands.json, from the commands that Bazel compiles C and C++ with.

    compile_commands.py FILE

Paths of the workspace are left as Bazel has them, relative to its root, where bazel-out leads to what is generated. What is GCC's
alone is left out, so that clangd and clang-tidy understand the rest.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGETS = 'mnemonic("CppCompile", //agent/... + //client/... + //daemon/... + //proto/... + //tests/...)'
ONLY_GCC = {"-fno-canonical-system-headers", "-fno-tree-loop-distribute-patterns", "-Werror", "-Wno-free-nonheap-object", "-Wunused-but-set-parameter"}


def bazel(*arguments):
    return subprocess.run(["bazel", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def command_of(arguments, external):
    """An entry of the file, or None for what is generated."""
    source = arguments[arguments.index("-c") + 1]
    if source.startswith(("bazel-out/", "external/")):
        return None
    kept = []
    for argument in arguments:
        if argument.startswith("external/"):
            argument = f"{external}/{argument.removeprefix('external/')}"
        if argument not in ONLY_GCC:
            kept.append(argument)
    return {"directory": str(ROOT), "file": str(ROOT / source), "arguments": kept}


def main():
    external = f"{bazel('info', 'output_base').strip()}/external"
    actions = json.loads(bazel("aquery", "-c", "opt", "--output=jsonproto", TARGETS)).get("actions", [])
    commands = {}
    for action in actions:
        command = command_of(action["arguments"], external)
        if command:
            # A source that is compiled twice, with -fPIC and without, is one entry.
            commands.setdefault(command["file"], command)
    pathlib.Path(sys.argv[1]).write_text(json.dumps([commands[name] for name in sorted(commands)], indent=1) + "\n")
    print(f"{sys.argv[1]}: {len(commands)} sources", file=sys.stderr)


if __name__ == "__main__":
    main()

"""The rooms of the agent lie on each other: a file includes only what is of its own room, or of one below."""

import re
import unittest

from harness import ROOT

# Lowest first, as in the table of agent/README.md.
ROOMS = ("include", "sys", "ring", "maps", "runtimes", "capture", "signals", "dump", "crash", "helper", "install", "preload")
# What only the file that lists them may include of the walkers of runtimes.
RUNTIMES = ("cpython", "v8", "hotspot", "go")
REGISTRY = "agent/runtimes/runtimes.c"

INCLUDE = re.compile(r'^ *# *include +"agent/([^"]+)"', re.M)


def sources():
    """(path below the root, the headers of the agent that it includes) of each file in a room."""
    for room in ROOMS:
        for path in sorted((ROOT / "agent" / room).rglob("*.[ch]")):
            yield str(path.relative_to(ROOT)), INCLUDE.findall(path.read_text())


class LayeringTest(unittest.TestCase):
    def test_every_file_of_the_agent_is_in_a_room(self):
        self.assertEqual([], [path.name for path in (ROOT / "agent").glob("*.[ch]")])

    def test_the_rooms_are_those_of_the_readme(self):
        listed = re.findall(r"^\| `(\w+)/` \|", (ROOT / "agent/README.md").read_text().split("## Packages")[0], re.M)
        self.assertEqual(list(ROOMS), listed)

    def test_a_room_includes_only_rooms_below(self):
        seen = 0
        for path, headers in sources():
            own = ROOMS.index(path.split("/")[1])
            for header in headers:
                seen += 1
                with self.subTest(file=path, includes=header):
                    self.assertLessEqual(ROOMS.index(header.split("/")[0]), own)
        self.assertGreater(seen, 200, "the includes are written in another way now")

    def test_generic_code_knows_no_runtime_by_name(self):
        for path, headers in sources():
            if path == REGISTRY:
                continue
            of_runtimes = {header.split("/")[1] for header in headers if header.startswith("runtimes/")} & set(RUNTIMES)
            with self.subTest(file=path):
                own = {path.split("/")[2]} & set(RUNTIMES) if path.startswith("agent/runtimes/") else set()
                self.assertEqual(set(), of_runtimes - own)

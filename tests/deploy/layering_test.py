"""The rooms of agent and daemon have an order: a file includes only what is of its own room, or of one before it."""

import re
import unittest

from harness import ROOT

# Lowest first, as in the table of agent/README.md.
ROOMS = ("include", "sys", "ring", "maps", "runtimes", "capture", "signals", "dump", "crash", "helper", "install", "preload")
# What only the file that lists them may include of the walkers of runtimes.
RUNTIMES = ("cpython", "v8", "hotspot", "go")
REGISTRY = "agent/runtimes/runtimes.c"

INCLUDE = re.compile(r'^ *# *include +"agent/([^"]+)"', re.M)

DAEMON = ROOT / "daemon"
INCLUDE_OF_DAEMON = re.compile(r'^ *# *include +"daemon/([^"]+)"', re.M)


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


def rooms_of_daemon():
    """Folders below daemon/ in the order of the table of daemon/README.md: the first is included by all."""
    table = (DAEMON / "README.md").read_text().split("## Rooms")[1].split("##")[0]
    return re.findall(r"^\| `([\w/]+)/` \|", table, re.M)


def room_of(path, rooms):
    """The room of a path below daemon/: the longest that it lies in; None: it lies in none."""
    return max((room for room in rooms if path.startswith(room + "/")), key=len, default=None)


def is_of_tests(path):
    return path.name.startswith("test_") or path.stem.endswith(("_test", "_bench", "_benchmark")) or "testing" in path.parts


def sources_of_daemon():
    """(path below daemon/, the headers of the daemon that it includes) of each file that goes into the program."""
    for path in sorted((*DAEMON.rglob("*.h"), *DAEMON.rglob("*.cc"))):
        if not is_of_tests(path.relative_to(DAEMON)):
            yield str(path.relative_to(DAEMON)), INCLUDE_OF_DAEMON.findall(path.read_text())


class DaemonLayeringTest(unittest.TestCase):
    def test_every_file_of_the_daemon_is_in_a_room(self):
        rooms = rooms_of_daemon()
        self.assertEqual(["main.cc"], [path for path, _ in sources_of_daemon() if room_of(path, rooms) is None])

    def test_every_room_has_files(self):
        paths = [path for path, _ in sources_of_daemon()]
        rooms = rooms_of_daemon()
        self.assertEqual(set(rooms), {room_of(path, rooms) for path in paths if path != "main.cc"})

    def test_the_model_includes_no_stage(self):
        self.assertEqual(["base", "capture"], rooms_of_daemon()[:2])

    def test_a_file_includes_only_rooms_above_its_own(self):
        rooms = rooms_of_daemon()
        seen, wrong = 0, {}
        for path, headers in sources_of_daemon():
            own = room_of(path, rooms)
            for header in headers:
                seen += 1
                room = room_of(header, rooms)
                # What stands in no room is of main or of tests.
                if own is not None and (room is None or rooms.index(room) > rooms.index(own)):
                    wrong[path, header] = f"{own}/ includes {room}/"
        self.assertEqual({}, wrong)
        self.assertGreater(seen, 1000, "the includes are written in another way now")

"""One dump of a Java program in which a counted loop runs, which no safepoint interrupts, from the start of the command to its
end. Beside it is jstack, which waits for one."""

import subprocess
import tempfile

import jdks
from stand import REPEAT, ROOT, program, say, seconds_of, stackctl, stand
from table import Figure, below, skipped

MS = 1e3
LIMIT_MS = 8
WHOLE_OR_PARTIAL = (0, 5)
# They take seconds.
PEER_REPEAT = min(REPEAT, 3)


def row_of(jdk, classes):
    ours, peer = [], []
    with stand() as daemon, program(daemon, jdk.java, "-cp", classes, "Blocked") as victim:
        dump = stackctl(daemon, "dump", victim.pid)
        seconds_of(dump, WHOLE_OR_PARTIAL)
        threads = len(daemon.dump(daemon.await_process(victim.pid)["name"]).threads)
        for i in range(REPEAT):
            say(f"java {jdk}: {i + 1} of {REPEAT}")
            ours.append(seconds_of(dump, WHOLE_OR_PARTIAL) * MS)
            if i < PEER_REPEAT:
                peer.append(seconds_of([jdks.tool("jstack"), "-l", str(victim.pid)]) * MS)
    what = f"`stackctl dump`, HotSpot {jdk}, {threads} threads, a counted loop running"
    return below(what, Figure(ours, "ms"), LIMIT_MS, peer=Figure(peer, "ms", "jstack"))


def java_rows():
    found = [jdk for jdk in jdks.found() if jdk.release in (17, 25)]
    if not found or not jdks.tool("javac") or not jdks.tool("jstack"):
        what = "`stackctl dump`, Java, a counted loop running"
        return [skipped(what, "no JDK of 17 or 25 is here", f"below {LIMIT_MS} ms")]
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run([jdks.tool("javac"), "-source", "8", "-target", "8", "-nowarn", "-d", classes,
                        ROOT / "tests/languages/java/Blocked.java"], check=True, capture_output=True)
        return [row_of(jdk, classes) for jdk in found]

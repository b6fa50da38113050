"""unbound changes its root and its user within milliseconds of its start. It is listed each time all the same, and each of its
crashes is stored. Five times by default, a hundred by `tests/run.sh --all`."""

import os
import pwd
import shutil
import signal
import unittest

from crashes import CrashTest, crash_of
from harness import AGENT, Victim, free_port
from sandbox_servers_test import ask_name
from tier import FULL

UNBOUND = "/usr/sbin/unbound"
TIMES = 100 if FULL else 5


@unittest.skipUnless(os.path.exists(UNBOUND), "no unbound: deploy/install-deps.sh --tests installs it")
@unittest.skipUnless(os.geteuid() == 0, "needs root for a change of root and user")
class UnboundTest(CrashTest):
    limit_s = 1800

    def setUp(self):
        super().setUp()
        self.dir.chmod(0o755)
        # Where its user may read it.
        self.agent = self.dir / AGENT.name
        shutil.copy(AGENT, self.agent)
        self.agent.chmod(0o755)
        self.root = self.dir / "root"
        self.root.mkdir()
        user = pwd.getpwnam("unbound")
        os.chown(self.root, user.pw_uid, user.pw_gid)

    def start(self, port):
        (self.root / "unbound.conf").write_text(f"""
server:
  interface: 127.0.0.1
  port: {port}
  username: unbound
  chroot: "{self.root}"
  directory: "{self.root}"
  pidfile: ""
  logfile: ""
  use-syslog: no
  do-daemonize: no
  num-threads: 2
  local-zone: "test." static
  local-data: "well.test. A 10.1.2.3"
remote-control:
  control-enable: no
""")
        victim = Victim([UNBOUND, "-d", "-p", "-c", self.root / "unbound.conf"], directory=self.dir, ready=None, agent=self.agent)
        self.addCleanup(victim.kill)
        return victim

    def test_each_start_is_listed_and_each_crash_is_stored(self):
        daemon = self.start_daemon()
        for number in range(TIMES):
            with self.subTest(number):
                port = free_port()
                victim = self.start(port)
                # Every second one is sent its end as soon as it is listed, wherever it is in its start.
                daemon.await_process(victim.pid)
                if number % 2 == 0:
                    self.assertEqual((1, "10.1.2.3"), ask_name(port, "well.test"))
                victim.signal(signal.SIGSEGV)
                self.assertEqual(-signal.SIGSEGV, victim.process.wait())
                self.assertEqual("SIGSEGV", crash_of(daemon, victim.pid).resource["crash"]["signalName"])
                victim.kill()


if __name__ == "__main__":
    unittest.main()

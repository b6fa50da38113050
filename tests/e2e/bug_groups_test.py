"""Forty bugs are forty groups of crashes, whichever compiler built the program, at whichever level, with lines shifted or not.

    bugs: 640 crashes of 40 bugs in 16 builds are 40 groups
"""

import collections
import re
import sys
import unittest

import bug_programs
import elf_variants
from harness import StackdTest, Victim, eventually

PREPARE = [bug_programs.prepare]


class BugGroupsTest(StackdTest):
    limit_s = 1200

    def setUp(self):
        super().setUp()
        self.builds = {build.name: build.program() for build in bug_programs.BUILDS}
        for name, program in self.builds.items():
            if program is None:
                self.skipTest(f"no {name.split()[0]} is here")
        self.daemon = self.start_daemon(extra_args=["--store-crashes-per-group", "100"])

    def crash_in_all(self, number):
        """Has one bug end the programs of all builds, which wait until the daemon knows each. {pid: name of the build}"""
        victims = {}
        for name, program in self.builds.items():
            victims[name] = Victim([program, number], directory=self.dir, stdin="")
            self.addCleanup(victims[name].kill)
        for victim in victims.values():
            self.daemon.await_process(victim.pid)
            victim.process.stdin.close()
        for victim in victims.values():
            self.assertLess(victim.process.wait(60), 0)
            victim.kill()  # for its pipes
        return {victim.pid: name for name, victim in victims.items()}

    def groups(self):
        return self.daemon.ctl_json("groups").get("stackGroups", [])

    def test_forty_bugs_are_forty_groups(self):
        bugs = bug_programs.bugs()
        self.assertEqual(40, len(bugs))
        self.assertEqual(len(self.builds), len({elf_variants.build_id(program) for program in self.builds.values()}))
        of_pid = {}
        for number, bug in enumerate(bugs):
            of_pid |= {pid: (bug, build) for pid, build in self.crash_in_all(number).items()}
        total = len(bugs) * len(self.builds)
        eventually("all crashes are counted", lambda: sum(int(g["crashCount"]) for g in self.groups()) == total, 120)
        fingerprints, bugs_of = collections.defaultdict(dict), collections.defaultdict(set)
        for group in self.groups():
            for dump in group["dumps"]:
                bug, build = of_pid[int(re.match(r"processes/(\d+)-", dump)[1])]
                fingerprints[bug].setdefault(group["fingerprint"], []).append(build)
                bugs_of[group["fingerprint"]].add(bug)
        # A caller that ended in a jump to the next function is not on the stack any more (daemon/fingerprint/README.md).
        split = {bug: found for bug, found in fingerprints.items()
                 if len(found) != 1 and (not bug.endswith("by_tail_call") or len(found) > 2)}
        merged = [sorted(together) for together in bugs_of.values() if len(together) != 1]
        print(f"bugs: {total} crashes of {len(bugs)} bugs in {len(self.builds)} builds are {len(bugs_of)} groups", file=sys.stderr,
              flush=True)
        self.assertEqual(([], []), ([f"{bug}: {found}" for bug, found in split.items()], merged))
        self.assertEqual(set(bugs), set(fingerprints))


if __name__ == "__main__":
    unittest.main()

"""Crashes over time: equal ones are one group, whatever build they come from; and a dump gets its names when they arrive."""

import select
import shutil
import signal
import subprocess
import unittest

import elf_variants
from harness import OK, PROGRAMS, STACKCTL, Dump, StackdTest, Victim, die_with_parent, eventually

# PADDING moves all that follows it: another build with the same functions.
CRASHES = """
#include <stdio.h>
#ifdef PADDING
__attribute__((used)) int padding(int n) { for (int i = 0; i < 100; ++i) n = n * 31 + i; return n; }
#endif
__attribute__((noinline)) int load_setting(const int* setting) { return *setting + 1; }
__attribute__((noinline)) int load_settings(const int* setting) { return load_setting(setting) + 1; }
int main(int argc, char** argv) {
  (void)argv;
  puts("ready");
  fflush(stdout);
  getchar();
  return load_settings(argc > 100 ? &argc : 0) + 1;
}
"""


class GroupsTest(StackdTest):
    def build(self, name, *flags):
        source = self.dir / "crashes.c"
        source.write_text(CRASHES)
        program = self.dir / name / "crashes"
        program.parent.mkdir()
        subprocess.run(["gcc", "-O1", "-fno-optimize-sibling-calls", *flags, "-o", program, source], check=True)
        return program

    def crash(self, daemon, program):
        victim = Victim([program], directory=self.dir, stdin="")
        self.addCleanup(victim.kill)
        daemon.await_process(victim.pid)
        victim.process.stdin.close()
        self.assertEqual(victim.process.wait(60), -signal.SIGSEGV)

    def test_two_builds_that_crash_alike_are_one_group(self):
        daemon = self.start_daemon()
        first, second = self.build("first"), self.build("second", "-DPADDING")
        self.assertNotEqual(elf_variants.build_id(first), elf_variants.build_id(second))
        for program in (first, second):
            self.crash(daemon, program)

        def counted():
            groups = daemon.ctl_json("groups").get("stackGroups", [])
            return groups if sum(int(group["crashCount"]) for group in groups) == 2 else None

        groups = eventually("both crashes are counted", counted)
        self.assertEqual(len(groups), 1, groups)
        group = groups[0]
        self.assertEqual(group["topFunction"], "load_setting")
        self.assertEqual([process["displayName"] for process in group["processes"]], ["crashes"])
        self.assertEqual(len(group["dumps"]), 2)

        explained = daemon.ctl("groups", "--explain", group["fingerprint"])
        self.assertEqual(explained.code, OK, explained.err)
        for word in ("load_setting", "load_settings", "used", *group["dumps"]):
            self.assertIn(word, explained.out)
        listed = daemon.ctl("list", "--crashes")
        self.assertEqual(len(listed.out.splitlines()), 3, listed.out)

        # The count outlives the dumps.
        for name in group["dumps"]:
            self.assertEqual(daemon.ctl("delete", name).code, OK)
        daemon.restart()
        self.assertEqual(daemon.ctl_json("groups")["stackGroups"][0]["crashCount"], "2")

    def test_watch_says_what_died(self):
        daemon = self.start_daemon()
        program = self.build("watched")
        watch = subprocess.Popen([STACKCTL, "--address", daemon.address, "watch"], stdout=subprocess.PIPE, text=True,
                                 preexec_fn=die_with_parent)
        self.addCleanup(watch.stdout.close)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)

        def said():
            # It begins when it begins: what crashes before that it does not see.
            self.crash(daemon, program)
            return watch.stdout.readline() if select.select([watch.stdout], [], [], 0.2)[0] else None

        line = eventually("watch prints a crash", said)
        self.assertIn("  CRASH  ", line)
        self.assertIn("null pointer", line)


class ResymbolizeTest(StackdTest):
    def stored(self, daemon, name):
        return Dump(daemon.ctl_json("show", name))

    def test_names_come_with_the_debug_file_though_process_and_program_are_gone(self):
        stripped, debug = elf_variants.by_build_id(PROGRAMS / "c_calls", self.dir / "elf")
        late = self.dir / "late"
        late.mkdir()
        daemon = self.start_daemon(extra_args=["--debug-dir", late])
        victim = self.start_victim(stripped)
        daemon.await_process(victim.pid)
        before = daemon.dump(victim.pid)
        tid = before.named("recursion")
        self.assertNotIn("recurse", before.functions(tid))
        victim.kill()
        stripped.unlink()
        # The daemon keeps the files of a process that has just ended for a moment.
        daemon.restart()

        # Without anything new, nothing changes but a note.
        self.assertEqual(daemon.ctl("resymbolize", before.name).code, OK)
        same = self.stored(daemon, before.name)
        self.assertEqual(same.stacks, before.stacks)
        self.assertTrue(any("not found here" in note and "c_calls" in note for note in same.notes), same.notes)

        shutil.copytree(debug / ".build-id", late / ".build-id")
        outcome = daemon.ctl("resymbolize", before.name)
        self.assertEqual((outcome.code, outcome.out), (OK, before.name + "\n"), outcome.err)
        after = self.stored(daemon, before.name)
        self.assertIn("recurse", after.functions(tid))
        self.assertEqual(after.resource["createTime"], before.resource["createTime"])
        for thread in before.threads:
            addresses = [{frame["address"] for frame in dump.frames(thread)} for dump in (before, after)]
            self.assertEqual(*addresses)
        self.assertEqual(len(daemon.ctl_json("list")["dumps"]), 1)

        # After a restart of the daemon, too, and without the debug file the names stay.
        shutil.rmtree(late / ".build-id")
        daemon.restart()
        self.assertEqual(daemon.ctl("resymbolize", before.name).code, OK)
        self.assertEqual(self.stored(daemon, before.name).stacks, after.stacks)


if __name__ == "__main__":
    unittest.main()

"""glibc's own tests that deal with signals, under the agent. They have the same end and the same output as alone, and no crash is
stored but of those processes that really die of one.

They are in glibc's source package, which deploy/install-deps.sh --tests fetches, and are built here against the glibc that is
installed. A few ask for internals of glibc and cannot be built so: they are written down below. Two are built otherwise there,
and fail here with and without the agent.

    glibc: 114 tests of signals, 112 pass alone, 0 differ under the agent; 7 processes died of a crash
"""

import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import pytest

from crashes import crashes, environment
from harness import StackdTest, eventually

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "stackd"

FOLDERS = ("signal", "nptl", "sysdeps/pthread", "sysdeps/unix/sysv/linux", "stdlib", "posix", "rt", "setjmp", "misc", "debug",
           "support")
OF_SIGNALS = re.compile(r"\b(x?sig[a-z]+|x?raise|abort|(x?pthread_|tg)?kill) *\(|\bSIG(SEGV|ABRT|BUS|FPE|ILL|TRAP|SYS)\b")

# They include headers of glibc's own build, or call what it does not export.
INTERNAL = {"tst-signal7", "tst-tls3", "tst-tls3-malloc", "tst-tls5", "tst-cancel25", "tst-pthread_kill-exited", "tst-robust8",
            "tst-clone2-internal", "tst-getpid1-internal", "tst-rseq-nptl", "tst-timer-sigmask", "tst-longjmp_chk3"}
# Not about signals. They wait for a gdb with glibc's plugin, for a locale that is built beside them, or for minutes. Or they wait
# for CPU time that a busy machine does not give them.
OTHERS = {"tst-pthread-gdb-attach", "tst-pthread-gdb-attach-static", "tst-strfmon_l", "tst-pthread-timedlock-lockloop",
          "tst-cputimer1", "tst-cputimer2", "tst-cputimer3"}

BUILD_FLAGS = {"tst-ssp-1": ["-fstack-protector-all"], "tst-cleanup2": ["-fno-builtin"], "tst-cleanupx2": ["-fno-builtin"]}
ARGUMENTS = {"tst-cancel7": ["--command", "exec {}"], "tst-cancelx7": ["--command", "exec {}"], "tst-exec4": ["{}"],
             "tst-support_capture_subprocess": ["--", "{}"]}

# How many processes of a test are meant to die of a signal that is a crash.
DEATHS = {"tst-bz20544": 5, "tst-ssp-1": 1, "tst-minsigstksz-2": 1}

AT_ONCE = 16  # most of them sleep
TRIES = 3
LIMIT_S = 60
PASSED = (0, 77)  # 77: it found that it cannot run here


@pytest.mark.thorough
class GlibcSignalsTest(StackdTest):

    def setUp(self):
        super().setUp()
        found = sorted(CACHE.glob("glibc-*/support/Makefile"))
        if not found:
            self.skipTest(f"no source of glibc in {CACHE} (deploy/install-deps.sh --tests fetches it)")
        self.source = found[-1].parents[1]
        self.objects = self.dir / "objects"
        self.objects.mkdir()

    # Building

    def compile(self, source, target, *options):
        """Whether it could be built. What the installed headers lack is taken from glibc's."""
        folders = ["include", "sysdeps/x86", "sysdeps/unix/sysv/linux", "sysdeps/generic", "sysdeps/pthread"]
        paths = re.findall(r"^#ifdef (\w+_PATH)", (self.source / "support/support_paths.c").read_text(), re.MULTILINE)
        command = ["gcc", "-std=gnu11", "-O1", "-w", "-D_GNU_SOURCE", "-rdynamic", "-include", "limits.h", "-include", "elf.h",
                   # Names of headers that only a build of glibc makes.
                   "-DTIMEOUTFACTOR=1", "-D_STACK_GROWS_DOWN=1", "-DDEFAULT_STACK_PERMS=6", "-Dlibc_hidden_proto(name)=",
                   *(f'-D{name}="/nonexistent"' for name in paths),
                   f"-I{source.parent}", f"-I{self.source}/support", f"-I{self.objects}", "-idirafter", self.source]
        for folder in folders:
            command += ["-idirafter", self.source / folder]
        return subprocess.run([*command, source, *options, "-o", target], cwd=self.source, capture_output=True).returncode == 0

    def build_support(self, pool):
        """The library that glibc's tests stand on."""
        (self.objects / "config.h").touch()
        makefile = (self.source / "support/Makefile").read_text()
        names = re.search(r"libsupport-routines = (.*?)\n\n", makefile, re.DOTALL)[1].replace("\\", "").split()
        objects = [self.objects / f"{name}.o" for name in names]
        built = pool.map(lambda name, target: self.compile(self.source / f"support/{name}.c", target, "-c"), names, objects)
        library = self.objects / "libsupport.a"
        subprocess.run(["ar", "rc", library, *(target for target, good in zip(objects, built) if good)], check=True)
        return library

    def sources(self):
        for folder in FOLDERS:
            for path in sorted((self.source / folder).glob("t*st-*.c")):
                text = path.read_text(errors="replace")
                for name in re.findall(r'#include "(.*?)"', text):
                    text += (path.parent / name).read_text(errors="replace") if (path.parent / name).exists() else ""
                is_program = re.search(r"support/test-driver\.c|test-skeleton\.c", text)
                is_part = path.stem.endswith(("skeleton", "common")) or "skeleton-" in path.stem
                if is_program and not is_part and OF_SIGNALS.search(text) and path.stem not in OTHERS:
                    yield path

    def build(self):
        """The programs that could be built."""
        sources = list(self.sources())
        programs = [self.dir / path.stem for path in sources]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            library = self.build_support(pool)

            def link(source, program):
                options = BUILD_FLAGS.get(source.stem, [])
                if re.search("(cancel|cleanup)x", source.stem):
                    options = [*options, "-fexceptions"]
                return self.compile(source, program, *options, "-pthread", library, "-lm")

            built = list(pool.map(link, sources, programs))
        self.assertEqual(INTERNAL, {path.stem for path, good in zip(sources, built) if not good})
        return [program for program, good in zip(programs, built) if good]

    # Running

    def run_once(self, program, env):
        """(exit code, what it printed but for numbers and their order)."""
        arguments = [word.format(program) for word in ARGUMENTS.get(program.name, [])]
        with tempfile.TemporaryDirectory(dir=self.dir) as folder:
            # Some open the Makefile beside them.
            pathlib.Path(folder, "Makefile").write_text("all:\n")
            try:
                done = subprocess.run([program, *arguments], cwd=folder, env=dict(env, TMPDIR=folder), timeout=LIMIT_S,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            except subprocess.TimeoutExpired:
                return "no end", []
        text = re.sub(r"0x[0-9a-f]+|\d+", "N", done.stdout.decode(errors="replace"))
        return done.returncode, sorted(" ".join(line.split()).strip(".") for line in text.splitlines())

    def run_both(self, program):
        """(exit code alone, difference or None, runs under the agent). Some depend on time, so one that differs runs again; and one
        that a busy machine makes fail without the agent tells nothing of it."""
        for tries in range(1, TRIES + 1):
            alone = self.run_once(program, environment())
            watched = self.run_once(program, environment(self.dir))
            if alone == watched:
                return alone[0], None, tries
        difference = f"{program.name}: alone {alone}, under the agent {watched}" if alone[0] in PASSED else None
        return alone[0], difference, TRIES

    def test_same_result_and_no_false_crash(self):
        daemon = self.start_daemon(extra_args=["--store-crashes-per-group", "500"])
        programs = self.build()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            results = dict(zip(programs, pool.map(self.run_both, programs)))
        eventually("nobody is connected", lambda: not daemon.processes())
        found = collections.Counter(dump["process"]["displayName"] for dump in crashes(daemon))
        expected = {program.name: DEATHS[program.name] * runs for program, (_, _, runs) in results.items()
                    if program.name in DEATHS}
        differences = [difference for _, difference, _ in results.values() if difference]
        failed_alone = sorted(program.name for program, (code, _, _) in results.items() if code not in PASSED)
        print(f"glibc: {len(programs)} tests of signals, {len(programs) - len(failed_alone)} pass alone (not "
              f"{' '.join(failed_alone)}), {len(differences)} differ under the agent; {found.total()} processes died of a crash",
              file=sys.stderr, flush=True)
        self.assertFalse(differences, "\n".join(differences))
        self.assertEqual(expected, dict(found))
        self.assertGreater(len(programs) - len(failed_alone), 100)


if __name__ == "__main__":
    unittest.main()

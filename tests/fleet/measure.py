"""How long a fleet dump takes, and what it costs the gateway: measure.py [PODS...]

Records dumps of a few real programs. The simulator answers with them as so many pods, over real gRPC on loopback, and the
gateway is asked. Prints a table in Markdown, and beside it what one call after the other takes.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e")]

import fleet_gateway  # noqa: E402
import go_programs  # noqa: E402
from built import built  # noqa: E402
from grpcurl_test import GRPCURL  # noqa: E402
from harness import ROOT, StackdTest  # noqa: E402
from ports import free_port  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def build_simulator():
    def compile_into(folder):
        done = go_programs.run_go("local", "build", "-o", folder / "simulator", ".", cwd=HERE / "simulator", timeout=600)
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    inputs = [HERE / "simulator", fleet_gateway.MODULE, go_programs.version_of("local")]
    return built("fleet-simulator", inputs, compile_into) / "simulator"


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mib(pid):
    return int(next(line.split()[1] for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM"))) / 1024


def address_of(pod, port):
    return f"127.{1 + (pod >> 16)}.{pod >> 8 & 255}.{pod & 255}:{port}"


class Measurement(StackdTest):
    """Not a test: its parts are those of one."""

    def runTest(self):
        pass

    def record(self, folder):
        """Dumps of real programs, as a daemon gives them to the gateway."""
        programs = {"orders": ("demo_orders",), "waiting": ("waiting_threads", "20"), "calls": ("c_calls",)}
        for name, command in programs.items():
            own = self.dir / name
            own.mkdir()
            daemon = self.start_daemon(own)
            daemon.await_process(self.start_victim(*command, directory=own).pid)
            reply = subprocess.run(
                [GRPCURL, "-plaintext", "-d", '{"view": "DUMP_VIEW_GROUPS"}', f"127.0.0.1:{daemon.port}", "stackd.v1.Stackd/CreateDump"],
                capture_output=True, text=True, check=True).stdout
            # 90 of 100 pods are alike, and one in a hundred is odd.
            for copy in range({"orders": 9, "waiting": 90, "calls": 1}[name]):
                (folder / f"{name}-{copy:02}.json").write_text(reply)

    def start_simulator(self, folder, *options):
        port = free_port()
        process = subprocess.Popen([build_simulator(), "--port", str(port), "--dumps", folder, *options], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        assert process.stdout.readline() == "ready\n"
        return process, port

    def measure(self, folder, pods, *options):
        simulator, port = self.start_simulator(folder, *options)
        own = pathlib.Path(tempfile.mkdtemp(dir=self.dir))
        gateway = fleet_gateway.Gateway(own, {f"pod-{pod:05}": (address_of(pod, port), {}) for pod in range(pods)}, "--parallel", 256)
        self.addCleanup(gateway.kill)
        gateway.start()
        for state in ("new connections", "kept connections"):
            before_cpu_s, before_bytes = cpu_s(gateway.process.pid), self.sent(simulator)
            dump = gateway.dump({"timeout": "60s" if not options else "5s"}, options=["-plaintext", "-max-time", 100, "-max-msg-sz", 4 << 20])
            used_s = cpu_s(gateway.process.pid) - before_cpu_s
            yield (f"| {pods:,} | {' '.join(options) or '-'} | {state} | {dump.get('answered', 0):,} | {float(dump['duration'][:-1]):.2f} s "
                   f"| {used_s:.2f} s | {peak_mib(gateway.process.pid):.0f} MiB | {(self.sent(simulator) - before_bytes) / (1 << 20):.1f} MiB "
                   f"| {len(dump.get('nodes', []))} |")
        gateway.kill()
        simulator.kill()

    def sent(self, simulator):
        simulator.stdin.write("sent\n")
        simulator.stdin.flush()
        return int(simulator.stdout.readline())

    def one_by_one(self, folder, pods=50):
        _, port = self.start_simulator(folder)
        begin_s = time.monotonic()
        for pod in range(pods):
            subprocess.run([GRPCURL, "-plaintext", "-import-path", ROOT / "proto", "-proto", "stackd/v1/stackd.proto", "-d", "{}",
                            address_of(pod, port), "stackd.v1.Stackd/CreateDump"], check=True, stdout=subprocess.DEVNULL)
        return (time.monotonic() - begin_s) / pods


def main():
    measurement = Measurement()
    measurement.setUp()
    try:
        folder = measurement.dir / "dumps"
        folder.mkdir()
        measurement.record(folder)
        print("| pods | simulated | | answered | time | CPU of the gateway | its peak memory | answers | nodes |")
        print("|---|---|---|---|---|---|---|---|---|")
        for pods in [int(argument) for argument in sys.argv[1:]] or [100, 1000, 10_000]:
            for line in measurement.measure(folder, pods):
                print(line, flush=True)
            for line in measurement.measure(folder, pods, "--delay", "50ms", "--lost", "100"):
                print(line, flush=True)
        print(f"\none call of grpcurl after the other: {measurement.one_by_one(folder) * 1000:.0f} ms a pod")
    finally:
        measurement.doCleanups()


if __name__ == "__main__":
    main()

"""Runs the measurements that are named, or all, and prints one table. Called by run.sh, which builds first."""

import argparse
import os
import platform
import sys

from agent_parts_rows import agent_parts_rows
from agent_rows import agent_rows
from crash_rows import crash_rows
from curve_rows import curve_rows
from daemon_rows import daemon_rows
from debug_data_rows import debug_data_rows
from detection_rows import detection_rows
from dump_rows import dump_rows
from gap_rows import gap_rows
from go_rows import go_rows
from java_rows import java_rows
from many_rows import many_rows
from node_rows import node_rows
from outside_rows import outside_rows
from pause_rows import pause_rows
from python_rows import python_rows
from roundtrip_rows import roundtrip_rows
from stage_rows import stage_rows
from stand import REPEAT, say
from start_rows import start_rows
from table import Row, render
from throughput_rows import throughput_rows

MEASUREMENTS = {
    "dump": dump_rows,
    "outside": outside_rows,
    "stages": stage_rows,
    "gap": gap_rows,
    "curve": curve_rows,
    "many": many_rows,
    "throughput": throughput_rows,
    "roundtrip": roundtrip_rows,
    "pause": pause_rows,
    "start": start_rows,
    "agent": agent_rows,
    "daemon": daemon_rows,
    "debug-data": debug_data_rows,
    "crash": crash_rows,
    "detection": detection_rows,
    "agent-parts": agent_parts_rows,
    "python": python_rows,
    "go": go_rows,
    "node": node_rows,
    "java": java_rows,
}


def machine():
    with open("/proc/cpuinfo", encoding="ascii") as cpuinfo:
        model = next((line.split(":")[1].strip() for line in cpuinfo if line.startswith("model name")), "unknown CPU")
    return (f"{os.cpu_count()} x {model}, Linux {platform.release()}, load average {os.getloadavg()[0]:.1f} at the start, "
            f"{REPEAT} repetitions")


def main():
    parser = argparse.ArgumentParser(prog="tests/bench/run.sh", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(MEASUREMENTS))
    names = parser.parse_args().names or list(MEASUREMENTS)
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are: {' '.join(MEASUREMENTS)}")
    header = machine()
    rows = []
    failed = False
    for name in names:
        try:
            rows += MEASUREMENTS[name]()
        except (RuntimeError, AssertionError, OSError) as error:
            # The others are still worth their time.
            say(f"{name}: {error}")
            rows.append(Row(name, "failed", str(error).splitlines()[0], reached=False))
            failed = True
    print(f"{header}, {os.getloadavg()[0]:.1f} at the end\n")
    print(render(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

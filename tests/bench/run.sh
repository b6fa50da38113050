#!/usr/bin/env bash
# Builds stackd, measures it beside its peers in the same run, and prints one table. README.md says how to read it.
#
#   tests/bench/run.sh              everything
#   tests/bench/run.sh NAME...      some of it: dump outside stages gap curve many throughput roundtrip pause start agent daemon
#                                   debug-data crash detection agent-parts python go node java
#   tests/bench/run.sh findings     what is said of hung programs, by stackd and by others: a table of its own
#   STACKD_BENCH_REPEAT=3           repetitions, 7 unless said
#
# Writes nothing into the repository. Exits 0 when everything could be measured, whatever the figures are.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."

# What the peers need (gdb, elfutils, linux-perf) is not installed: what is missing is skipped, and said.
deploy/install-deps.sh >&2
bazel build -c opt //daemon:stackd //client:stackctl //agent:libstackd_agent.so //tests/bench/... >&2
export PYTHONDONTWRITEBYTECODE=1
if [[ ${1-} == findings ]]; then
  bazel build -c opt //tests/hangs/... >&2
  exec /usr/bin/python3 tests/bench/findings.py "${@:2}"
fi
exec /usr/bin/python3 tests/bench/run.py "$@"

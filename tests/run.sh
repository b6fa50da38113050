#!/usr/bin/env bash
# Runs the tests of stackd, on a machine that may have nothing installed yet.
#
#   tests/run.sh                        everything: unit tests, then the end-to-end tests (some 50 minutes on two cores)
#   tests/run.sh accounted_test         one file of tests/{e2e,deploy}, or one class or case: right_test.RightTest.test_redis
#   tests/run.sh //daemon/store/...     the unit tests of these Bazel targets
#   tests/run.sh --list                 what there is
#
# The last line is "N passed, N failed", and ", N skipped" where cases could not run here; how many of which file, and why, stands
# before it: so much is not proved. Exits 0 when none failed. STACKD_TEST_FULL=1 gives the long form of what is short here
# (churn: 300 s each). With STACKD_TEST_MAY_SKIP=WORD,... an end-to-end test that is skipped fails, unless one of the words
# is in its name or its reason.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

PYTHON=/usr/bin/python3 # Debian's, whatever else is first on PATH
WHAT_TO_DUMP=(//daemon:stackd //client:stackctl //agent:libstackd_agent.so //agent:libstackd_java.so //tests/programs/...
  //tests/hangs/... //agent/node:addon)

say() { printf '\n=== %s\n' "$*" >&2; }

finish() {
  local passed=0 failed=0 skipped=0 p f s file
  for file in "$RESULTS"/*.counts; do
    [[ -e $file ]] || continue
    read -r p f s <"$file"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  done
  if ((skipped)); then
    say "not tested here"
    cat "$RESULTS"/*.skipped | sort | uniq -c >&2
  fi
  say "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
  local line="$passed passed, $failed failed"
  ((skipped)) && line+=", $skipped skipped"
  printf '%s\n' "$line"
  ((failed == 0 && passed > 0))
}

# Counts as one failure: there is nothing to run without it.
failed_before_tests() {
  say "$1"
  echo "0 1 0" >"$RESULTS/setup.counts"
  finish
  exit 1
}

run_unit_tests() {
  say "unit tests: bazel test $*"
  bazel test -c opt --keep_going --test_output=errors --build_event_json_file="$RESULTS/events.json" -- "$@" >&2
  "$PYTHON" tests/count_unit_tests.py "$RESULTS/events.json" "$RESULTS/unit.skipped" >"$RESULTS/unit.counts"
}

run_e2e_tests() {
  say "end-to-end tests: building what they run"
  bazel build -c opt "${WHAT_TO_DUMP[@]}" >&2 || failed_before_tests "the build failed: no end-to-end test can run"
  say "end-to-end tests"
  # It cleans up when it is told to end, also by the death of this shell.
  setpriv --pdeathsig TERM "$PYTHON" tests/e2e/run.py --counts "$RESULTS/e2e.counts" --skipped "$RESULTS/e2e.skipped" "$@" >&2
  # A runner that died has counted nothing; it must not pass for "nothing failed".
  [[ -e $RESULTS/e2e.counts ]] || echo "0 1 0" >"$RESULTS/e2e.counts"
}

list() {
  bazel query --noshow_progress 'tests(//...)' 2>/dev/null
  "$PYTHON" tests/e2e/run.py --list
}

main() {
  case ${1-} in
    -h | --help)
      sed -n '2,13s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    --list)
      list
      exit
      ;;
  esac

  RESULTS=$(mktemp -d)
  trap 'rm -rf "$RESULTS"' EXIT
  export PATH="$PATH:/usr/local/go/bin:${XDG_CACHE_HOME:-$HOME/.cache}/stackd/bin"
  bash deploy/install-deps.sh --tests || failed_before_tests "packages are missing"

  local targets=() cases=() argument
  for argument in "$@"; do
    if [[ $argument == //* ]]; then targets+=("$argument"); else cases+=("$argument"); fi
  done
  if (($# == 0)); then
    run_unit_tests //...
    run_e2e_tests
  else
    if ((${#targets[@]})); then run_unit_tests "${targets[@]}"; fi
    if ((${#cases[@]})); then run_e2e_tests "${cases[@]}"; fi
  fi
  finish
}

main "$@"

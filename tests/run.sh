#!/usr/bin/env bash
# Runs the tests of stackd, on a machine that may have nothing installed yet.
#
#   tests/run.sh                        every promise: unit tests, then the end-to-end tests, with the oldest and newest of each runtime
#   tests/run.sh --quick                unit tests and one end-to-end case for each promise: 3 minutes once all is built
#   tests/run.sh --all                  also every version, long churn, the test suites of others; hours. A release needs it
#   tests/run.sh accounted_test         one file of tests/{e2e,deploy}, or one class or case: right_test.RightTest.test_redis
#   tests/run.sh //daemon/store/...     the unit tests of these Bazel targets
#   tests/run.sh --list                 what there is
#
# The last line is "N passed, N failed", and ", N skipped" where cases could not run here. How many of which file, and why,
# stands before it: so much is not proved. Exits 0 when none failed. STACKD_TEST_WORKERS is how many end-to-end cases run
# beside each other (4). With STACKD_TEST_MAY_SKIP=WORD,... an end-to-end test that is skipped fails, unless one of the
# words is in its name or its reason.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

PYTHON=/usr/bin/python3 # Debian's, whatever else is first on PATH
WHAT_TO_DUMP=(//daemon:stackd //client:stackctl //agent:libstackd_agent.so //agent:libstackd_java.so //tests/programs/...
  //tests/hangs/... //agent/node:addon)
# Most cases wait: for a dump, a deadline, a process that ends.
WORKERS=${STACKD_TEST_WORKERS:-4}

say() { printf '\n=== %s\n' "$*" >&2; }

# Prints what a part of the run has taken since the last call.
part_took() {
  TIMES+="$1 $((SECONDS - PART_BEGAN)) s; "
  PART_BEGAN=$SECONDS
}

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
  say "took $((SECONDS / 60)) min $((SECONDS % 60)) s on $(nproc) CPUs: ${TIMES%; }"
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
  local long_forms=()
  # Not in the other tiers: Bazel would run again what it has run with another environment.
  [[ $STACKD_TEST_TIER == all ]] && long_forms=(--test_env=STACKD_TEST_TIER=all)
  bazel test -c opt --keep_going --test_output=errors "${long_forms[@]}" --build_event_json_file="$RESULTS/events.json" -- "$@" >&2
  "$PYTHON" tests/count_unit_tests.py "$RESULTS/events.json" "$RESULTS/unit.skipped" >"$RESULTS/unit.counts"
  part_took "unit tests"
}

# pytest_on NAME OPTION...: counts in NAME.counts. A runner that died has counted nothing; it must not pass for "nothing failed".
pytest_on() {
  local name=$1
  shift
  # It cleans up when it is told to end, also by the death of this shell.
  setpriv --pdeathsig TERM "$PYTHON" -B -m pytest -c tests/pytest.ini --rootdir tests --durations=30 --durations-min=5 \
    --counts "$RESULTS/$name.counts" --skipped "$RESULTS/$name.skipped" "$@" >&2
  [[ -e $RESULTS/$name.counts ]] || echo "0 1 0" >"$RESULTS/$name.counts"
}

# path_of module.Class.case: tests/e2e/module.py::Class::case
path_of() {
  local module=${1%%.*} rest='' folder
  [[ $1 == *.* ]] && rest="::${1#*.}"
  for folder in tests/e2e tests/deploy; do
    if [[ -e $folder/$module.py ]]; then
      printf '%s\n' "$folder/$module.py${rest//./::}"
      return
    fi
  done
  return 1
}

# run_e2e_tests MARKERS PATH...
run_e2e_tests() {
  local markers=$1
  shift
  say "end-to-end tests: building what they run"
  bazel build -c opt "${WHAT_TO_DUMP[@]}" >&2 || failed_before_tests "the build failed: no end-to-end test can run"
  part_took build
  "$PYTHON" -B tests/e2e/prepare.py "$@" >&2 || failed_before_tests "what the tests run could not be prepared"
  part_took prepare
  say "end-to-end tests, $WORKERS beside each other"
  # Not by the order of files, which is all that "load" knows: a worker gets the next case when it is done with one.
  pytest_on e2e -n "$WORKERS" --dist loadgroup -m "not alone${markers:+ and $markers}" "$@"
  part_took "end-to-end tests"
  say "end-to-end tests that need the machine for themselves"
  pytest_on alone -m "alone${markers:+ and $markers}" "$@"
  part_took "those alone"
}

list() {
  bazel query --noshow_progress 'tests(//...)' 2>/dev/null
  "$PYTHON" -B -m pytest -c tests/pytest.ini --rootdir tests --collect-only -q tests/e2e tests/deploy |
    sed -n 's,^\(e2e\|deploy\)/\(.*\)\.py::,\2.,p' | sed 's/::/./g'
}

main() {
  local targets=() cases=() argument path
  export STACKD_TEST_TIER=default
  for argument in "$@"; do
    case $argument in
      -h | --help)
        sed -n '2,17s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
      --list)
        list
        exit
        ;;
      --quick) STACKD_TEST_TIER=quick ;;
      --all) STACKD_TEST_TIER=all ;;
      //*) targets+=("$argument") ;;
      *)
        path=$(path_of "$argument") || {
          printf "tests/run.sh: there is no test file '%s.py' in tests/e2e and tests/deploy; --list prints the names\n" \
            "${argument%%.*}" >&2
          exit 2
        }
        cases+=("$path")
        ;;
    esac
  done

  RESULTS=$(mktemp -d)
  trap 'rm -rf "$RESULTS"' EXIT
  TIMES='' PART_BEGAN=0
  export PATH="$PATH:/usr/local/go/bin:${XDG_CACHE_HOME:-$HOME/.cache}/stackd/bin"
  bash deploy/install-deps.sh --tests || failed_before_tests "packages are missing"
  part_took install

  local markers=''
  case $STACKD_TEST_TIER in
    quick) markers=quick ;;
    default) markers='not thorough' ;;
  esac
  if ((${#targets[@]} + ${#cases[@]} == 0)); then
    run_unit_tests //...
    run_e2e_tests "$markers" tests/e2e tests/deploy
  else
    if ((${#targets[@]})); then run_unit_tests "${targets[@]}"; fi
    # What is named runs, whatever its tier.
    if ((${#cases[@]})); then run_e2e_tests '' "${cases[@]}"; fi
  fi
  finish
}

main "$@"

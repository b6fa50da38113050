#!/usr/bin/env bash
# From nothing to the dump of a hung program: installs what is missing, builds, and starts the daemon. Then it runs a small
# program under the agent and dumps it. The daemon and the program are left running.
#
#   deploy/quickstart.sh           may be run again: it takes a new dump of what runs already
#   deploy/quickstart.sh --stop    ends both and removes what they left
#
# Everything it keeps is in ${XDG_RUNTIME_DIR:-/tmp}/stackd-quickstart-UID.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

DIR="${XDG_RUNTIME_DIR:-/tmp}/stackd-quickstart-$UID"
STACKD=bazel-bin/daemon/stackd
STACKCTL=bazel-bin/client/stackctl
AGENT=bazel-bin/agent/libstackd_agent.so
DEMO=bazel-bin/tests/programs/demo_orders
FIRST_PORT=7443

step() { printf '[%3d s] %s\n' "$SECONDS" "$*" >&2; }
die() {
  step "$*"
  exit 1
}

# The pid in FILE, if that process still is the program NAME.
running() {
  local pid
  pid=$(cat "$DIR/$1.pid" 2>/dev/null) || return 1
  [[ $(cat "/proc/$pid/comm" 2>/dev/null) == "$1" ]] && echo "$pid"
}

# A process that ended may stay in /proc until its parent has asked how.
alive() { grep -qs '^State:.[^ZX]' "/proc/$1/status"; }

# A folder where no other user may read or plant anything, also in /tmp.
make_directory() {
  mkdir -p "$DIR"
  [[ -O $DIR && ! -L $DIR ]] || die "$DIR belongs to somebody else; set XDG_RUNTIME_DIR to a directory of yours"
  chmod 0700 "$DIR"
}

stop() {
  local name pid stopped=
  for name in demo_orders stackd; do
    pid=$(running "$name") || continue
    kill "$pid"
    # stackd drains and ends within 5 s; what does not listen to SIGTERM is ended.
    for _ in {1..60}; do
      alive "$pid" || break
      sleep 0.1
    done
    if alive "$pid"; then kill -KILL "$pid"; fi
    step "stopped $name ($pid)"
    stopped=1
  done
  [[ -n $stopped ]] || step "nothing was running"
  if [[ -O $DIR && ! -L $DIR ]]; then
    rm -rf "$DIR"
    step "removed $DIR with its dumps"
  fi
}

port_in_use() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_port() {
  local port=$1
  while port_in_use "$port"; do
    step "port $port is in use, trying the next"
    port=$((port + 1))
  done
  echo "$port"
}

start_daemon() {
  local pid web_port port=$FIRST_PORT
  if pid=$(running stackd); then
    step "the daemon runs already (pid $pid, port $(cat "$DIR/port"))"
    return
  fi
  port=$(free_port "$port")
  web_port=$(free_port "$((port + 1))")
  setsid "$STACKD" --dir "$DIR" --listen "127.0.0.1:$port" --web-listen "127.0.0.1:$web_port" --store "$DIR/store.db" \
    </dev/null >"$DIR/stackd.log" 2>&1 &
  pid=$!
  echo "$pid" >"$DIR/stackd.pid"
  echo "$port" >"$DIR/port"
  echo "$web_port" >"$DIR/web-port"
  until ctl ps >/dev/null 2>&1; do
    alive "$pid" || die "the daemon ended at once: $(tail -n 3 "$DIR/stackd.log")"
    sleep 0.02
  done
  step "started the daemon (pid $pid, port $port, directory $DIR)"
}

start_demo() {
  local pid
  if pid=$(running demo_orders); then
    step "the demo program runs already (pid $pid)"
    return
  fi
  # The program says "ready" when its threads are where they hang.
  rm -f "$DIR/demo.out"
  mkfifo "$DIR/demo.out"
  LD_PRELOAD="$PWD/$AGENT" STACKD_DIR="$DIR" STACKD_NAME=orders setsid "$DEMO" </dev/null >"$DIR/demo.out" 2>"$DIR/demo.log" &
  pid=$!
  echo "$pid" >"$DIR/demo_orders.pid"
  read -r <"$DIR/demo.out" || die "the demo program ended at once: $(tail -n 3 "$DIR/demo.log")"
  rm -f "$DIR/demo.out"
  step "started a small order service under the agent (pid $pid); it hangs by now"
}

ctl() { STACKD_DIR="$DIR" "$STACKCTL" --address "unix:$DIR/api.sock" "$@"; }

await_registration() {
  for _ in {1..500}; do
    if ctl ps 2>/dev/null | grep -qw "$1"; then return; fi
    sleep 0.02
  done
  die "process $1 did not come to the daemon within 10 s; $DIR/stackd.log may say why"
}

print_next_commands() {
  local port
  port=$(cat "$DIR/port")
  cat <<END

In a browser: http://localhost:$(cat "$DIR/web-port")/

What to type next:

  export STACKD_DIR=$DIR PATH=$PWD/bazel-bin/client:\$PATH
  stackctl ps                                   # who has an agent
  stackctl dump orders                          # every thread, equal stacks in one group
  stackctl dump orders --all                    # one by one, as a debugger prints them
  stackctl list                                 # the dumps so far
  stackctl show NAME                            # one of them again
  LD_PRELOAD=$PWD/$AGENT YOUR_PROGRAM   # your own program, then: stackctl dump YOUR_PROGRAM

  grpcurl -plaintext 127.0.0.1:$port list
  grpcurl -plaintext -d '{}' 127.0.0.1:$port stackd.v1.Stackd/ListProcesses
  grpcurl -plaintext -d '{"view": "DUMP_VIEW_TEXT"}' 127.0.0.1:$port stackd.v1.Stackd/CreateDump
  grpcurl -plaintext -unix -d '{}' $DIR/api.sock grpc.health.v1.Health/Check

  kill -ABRT \$(cat $DIR/demo_orders.pid); sleep 1; stackctl show   # and how it looks when the program dies

  deploy/quickstart.sh --stop
END
}

main() {
  case ${1-} in
    '') ;;
    --stop)
      stop
      return
      ;;
    -h | --help)
      sed -n '2,8s/^# \{0,1\}//p' "deploy/quickstart.sh"
      return
      ;;
    *)
      step "unknown argument '$1'; see --help"
      return 2
      ;;
  esac

  bash deploy/install-deps.sh
  step "packages are there; building (the first time takes minutes)"
  bazel build -c opt --show_progress --curses=no --show_progress_rate_limit=15 \
    //daemon:stackd //client:stackctl //agent:libstackd_agent.so //tests/programs:demo_orders >&2 ||
    die "the build failed"
  step "built"
  make_directory
  start_daemon
  start_demo
  local pid
  pid=$(cat "$DIR/demo_orders.pid")
  await_registration "$pid"
  step "dumping it"
  ctl dump "$pid"
  print_next_commands
}

main "$@"

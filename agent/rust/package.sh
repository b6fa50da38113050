#!/usr/bin/env bash
# Makes the crate, stackd-VERSION.crate, in the folder of the first argument (default: here), and prints its path.
#
# Cargo packs only what lies below Cargo.toml, and the agent's C sources lie above it. They are copied beside it first, in a
# folder of its own. Further arguments go to `cargo package`: --list shows what is packed and makes nothing.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
out=$(readlink -f "${1:-.}")
shift || true

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/agent"
cp -r "$here"/{Cargo.toml,Cargo.lock,build.rs,README.md,src} "$folder/"
cp -r "$here"/../{sys,ring,maps,runtimes,capture,signals,dump,crash,helper,install,include} "$folder/agent/"
cd "$folder"
cargo package --allow-dirty --quiet "$@"
for crate in "${CARGO_TARGET_DIR:-target}"/package/*.crate; do
  [[ -e $crate ]] || continue # --list makes none
  cp "$crate" "$out/"
  printf '%s\n' "$out/${crate##*/}"
done

#!/usr/bin/env bash
# Writes client/fleet/api anew from proto/stackd/v1: messages, and the calls of both services.
#
#   client/fleet/generate.sh            writes into client/fleet/api
#   client/fleet/generate.sh FOLDER     writes elsewhere: the test compares it with what is checked in
#
# protoc is Debian's; the plugins are those that go.mod pins.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
out=$(realpath -m "${1-$here/api}")

plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
cd "$here"
go build -o "$plugins" google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go

mkdir -p "$out"
package=stackd.example/fleet/api/stackdv1
options=(module=stackd.example/fleet/api "Mstackd/v1/stackd.proto=$package" "Mstackd/v1/fleet.proto=$package")
PATH=$plugins:$PATH protoc -I ../../proto -I /usr/include \
  --go_out="$out" "${options[@]/#/--go_opt=}" \
  --connect-go_out="$out" "${options[@]/#/--connect-go_opt=}" \
  stackd/v1/stackd.proto stackd/v1/fleet.proto

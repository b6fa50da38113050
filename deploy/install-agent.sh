#!/usr/bin/env bash
# Builds the agent and installs what C and C++ programs need of it below PREFIX (/usr/local, say):
#
#   deploy/install-agent.sh PREFIX
#   deploy/install-agent.sh --no-build PREFIX      takes what is in bazel-bin
#
#   lib/libstackd_agent.so, lib/libstackd_agent.a     by LD_PRELOAD or linked; linked into the program
#   lib/libstackd_java.so                             -agentpath of a Java VM
#   include/stackd/agent.h, include/stackd/heartbeat.hpp
#   lib/pkgconfig/stackd.pc, lib/cmake/stackd/        pkg-config stackd, find_package(stackd)
#
# The folder may be moved as a whole afterwards.
set -euo pipefail

ROOT=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)

# ARCHIVE from the objects of other archives: a user links one file.
join_archives() {
  local archive=$1 part
  shift
  rm -f "$archive"
  {
    printf 'create %s\n' "$archive"
    for part in "$@"; do printf 'addlib %s\n' "$part"; done
    printf 'save\nend\n'
  } | ar -M
}

# Writes a template of agent/cpp with the version filled in.
fill_in() {
  local major minor
  IFS=. read -r major minor _ <<<"$VERSION"
  sed -e "s/@VERSION@/$VERSION/g" -e "s/@VERSION_MAJOR@/$major/g" -e "s/@VERSION_MINOR@/$minor/g" "$ROOT/agent/cpp/$1" >"$2"
  chmod 644 "$2"
}

main() {
  local no_build=
  if [[ ${1-} == --no-build ]]; then
    no_build=1
    shift
  fi
  if (($# != 1)) || [[ $1 == -* ]]; then
    sed -n '2,12s/^# \{0,1\}//p' "$0"
    [[ ${1-} == -h || ${1-} == --help ]]
    return
  fi
  mkdir -p "$1"
  local prefix bin=$ROOT/bazel-bin/agent
  prefix=$(cd "$1" && pwd)
  VERSION=$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' "$ROOT/daemon/config/version.h")

  [[ -n $no_build ]] || (cd "$ROOT" && bazel build -c opt //agent:libstackd_agent.so //agent:libstackd_java.so //agent:stackd_agent //agent:handler)
  install -d "$prefix"/{include/stackd,lib/pkgconfig,lib/cmake/stackd}
  install -m 755 "$bin/libstackd_agent.so" "$bin/libstackd_java.so" "$prefix/lib/"
  join_archives "$prefix/lib/libstackd_agent.a" "$bin/libstackd_agent.a" "$bin/libhandler.a"
  install -m 644 "$ROOT"/agent/include/stackd/{agent.h,heartbeat.hpp} "$prefix/include/stackd/"
  install -m 644 "$ROOT/agent/cpp/stackd-config.cmake" "$prefix/lib/cmake/stackd/"
  fill_in stackd.pc.in "$prefix/lib/pkgconfig/stackd.pc"
  fill_in stackd-config-version.cmake.in "$prefix/lib/cmake/stackd/stackd-config-version.cmake"
}

main "$@"

#!/usr/bin/env bash
# Makes a program with more than 1 GiB of debug information (sum of its .debug_ sections), unless it is there already, and
# prints its path. It need not compile for an hour: one unit is compiled, copied under other names, and linked.
#
#   make_debug_data.sh FOLDER      takes about two minutes and 5 GB there, of which 2 GB stay
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
folder=$1
copies=${STACKD_BENCH_UNITS:-520}

mkdir -p "$folder"
cd "$folder"
program=$PWD/debug_data_$copies
sources=("$here/debug_data_unit.cc" "$here/debug_data_main.c" "$0")
if [[ -x $program ]] && ! find "${sources[@]}" -newer "$program" | grep -q .; then
  echo "$program"
  exit
fi
trap 'rm -f unit_*.o' EXIT

# The last two: types that the unit does not use are described as well, as in programs with large headers of their own.
g++ -std=c++20 -O1 -g2 -fno-eliminate-unused-debug-types -femit-class-debug-always -c "${sources[0]}" -o unit.o
{
  echo 'typedef int Next(int); typedef int Unit(Next*, int);'
  for ((i = 0; i < copies; i++)); do echo "Unit bench_unit_$i;"; done
  echo 'Unit* const bench_units[] = {'
  for ((i = 0; i < copies; i++)); do echo "bench_unit_$i,"; done
  echo "}; const int bench_unit_count = $copies;"
} >units.c
gcc -c units.c -o unit_table.o
gcc -O2 -g2 -c "${sources[1]}" -o unit_main.o
for ((i = 0; i < copies; i++)); do objcopy --redefine-sym bench_unit=bench_unit_$i unit.o unit_$i.o; done
g++ -fuse-ld=gold -o "$program.new" unit_*.o -pthread
mv "$program.new" "$program"
echo "$program"

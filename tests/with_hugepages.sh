#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Switches huge pages on, runs a command, and puts everything back, also when the command fails or is interrupted.
#
#   tests/with_hugepages.sh BUILD_DIR            ctest's tests labelled `hugepages`
#   tests/with_hugepages.sh COMMAND [ARG...]     that command
#
# $KVP_HUGEPAGES: huge pages of 2 MiB, 256 by default. Needs root; exit status 77 (skipped) where that, or the kernel, is not to be had.
set -u

thp=/sys/kernel/mm/transparent_hugepage/shmem_enabled
huge=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
wanted=${KVP_HUGEPAGES:-256}
old_thp=
old_huge=

skip() {
	echo "with_hugepages: skipped: $1" >&2
	exit 77
}

# A second signal must not end this half-way: shrinking the pool takes a while.
restore() {
	trap '' HUP INT TERM
	trap - EXIT
	[ -z "$old_thp" ] || echo "$old_thp" >"$thp"
	[ -z "$old_huge" ] || echo "$old_huge" >"$huge"
}

[ $# -gt 0 ] || { echo "usage: $0 BUILD_DIR | COMMAND [ARG...]" >&2; exit 2; }
[ "$(id -u)" = 0 ] || skip "only root can switch huge pages"
[ -w "$thp" ] || skip "$thp can't be written"
[ -w "$huge" ] || skip "$huge can't be written"

# One at a time: two would take each other's setting for the one to restore.
exec 9<"$huge"
flock 9 || skip "flock is missing"

trap restore EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# The word in brackets is the one in force.
word=$(sed 's/.*\[\(.*\)\].*/\1/' "$thp")
count=$(cat "$huge")
echo advise 2>/dev/null >"$thp" || skip "$thp refuses 'advise'"
old_thp=$word
if [ "$count" -lt "$wanted" ]; then
	old_huge=$count
	echo "$wanted" 2>/dev/null >"$huge" || skip "$huge refuses $wanted"
	got=$(cat "$huge")
	[ "$got" -ge "$wanted" ] || skip "memory gave only $got of $wanted huge pages"
fi

if [ $# -eq 1 ] && [ -f "$1/CTestTestfile.cmake" ]; then
	ctest --test-dir "$1" -L '^hugepages$' --output-on-failure --no-tests=error 9<&-
else
	"$@" 9<&-
fi

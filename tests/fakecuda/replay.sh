#!/bin/sh
# replay.sh KVPOOLCTL DOUBLE KERNELS: a replay through a pool on the driver double verifies every block that it finds, in both ways of sharing, and
# finds the byte that was flipped on purpose.
set -u
ctl=$1
machine=$(mktemp) output=$(mktemp)
trap 'rm -f "$machine" "$output"' EXIT
export LD_LIBRARY_PATH="$2" FAKECUDA_KERNELS="$3" FAKECUDA_MACHINE="$machine" FAKECUDA_DELAY_US=20
bad=0

# replay <expected status> <text of the output> <options>
replay()
{
	expected=$1 text=$2
	shift 2
	: >"$machine"
	"$ctl" replay --standalone --device cuda:0 --generate 24 --blocks 4000 --block-tokens 16 "$@" >"$output" 2>&1
	status=$?
	[ $status = "$expected" ] && grep -Eq "$text" "$output" && return
	echo "replay $*: status $status instead of $expected, or no line '$text':"
	cat "$output"
	bad=1
}

replay 0 '^failures +0' --share fd
replay 0 'cuda-ipc pages' --share ipc --attention-every 4
replay 1 'is 0x.., must be 0x' --share fd --engines 2 --inject flip --generate 200 --blocks 20000
exit $bad

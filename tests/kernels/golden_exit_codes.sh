#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# golden_kernels must tell a right answer (0) from a wrong one (1) and from a case it cannot read (2).
# usage: golden_exit_codes.sh GOLDEN_KERNELS CASES_DIR
set -eu
program=$1
cases=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

expect() {
	want=$1
	shift
	got=0
	"$program" "$@" >"$work/log" 2>&1 || got=$?
	if [ "$got" != "$want" ]; then
		echo "golden_kernels $*: exit $got, expected $want"
		cat "$work/log"
		exit 1
	fi
}

# spoil FILE OFFSET OCTAL: overwrites one byte.
spoil() {
	printf "\\$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

fresh() {
	rm -rf "$work/case"
	cp -r "$cases/$1" "$work/case"
	chmod -R u+w "$work/case"
}

fresh mla_dense_sink
expect 0 "$work/case"
# The exponent's byte of the first expected value.
for array in out lse; do
	fresh mla_dense_sink
	spoil "$work/case/$array.npy" 131 103
	expect 1 "$work/case"
done
fresh msa_select_i2_l3
spoil "$work/case/selected.npy" 128 077
expect 1 "$work/case"
for array in score n_valid selected out lse dense_out dense_lse; do
	fresh msa_decode
	spoil "$work/case/$array.npy" 131 103
	expect 1 "$work/case"
done
fresh mla_sparse_fp8
rm "$work/case/indices.npy"
expect 2 "$work/case"
fresh mla_sparse_fp8
spoil "$work/case/q.npy" 0 000
expect 2 "$work/case"
fresh mla_dense_decode
truncate -s -2 "$work/case/pages.npy"
expect 2 "$work/case"
expect 2 "$work/nothing_here"
expect 2

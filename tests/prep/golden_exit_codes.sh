#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# golden_host_prep must tell a right answer (0) from a wrong one (1) and from a file it cannot read (2).
# usage: golden_exit_codes.sh GOLDEN_HOST_PREP CASES_JSON
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
		echo "golden_host_prep $*: exit $got, expected $want"
		cat "$work/log"
		exit 1
	fi
}

put() {
	printf '%s\n' "$1" >"$work/case.json"
}

expect 0 "$cases"
expect 0 "$cases" "$cases"
# The first number of each list of results, one at a time, is no longer right.
for field in batch_cache_indices batch_cache_indices_not_aggregate flat block_ids_per_seq m3_block_ids_per_seq out_cache_loc \
	kv_indices page_table n_valid selected score_head_token_block seq_lens cu_kv_lens kv_segment_lens seqused_k kv_page_indptr \
	total_rows max_seqlen_k expected missing_key; do
	awk -v field="\"$field\":" '
		index($0, field) && !done { inside = 1 }
		inside && !done && /[0-9]/ && /^[^a-z]*-?[0-9.]+,?$/ { sub(/-?[0-9.]+/, "31"); done = 1 }
		inside && !done && index($0, field) && /: -?[0-9]+,?$/ { sub(/: -?[0-9]+/, ": 31"); done = 1 }
		inside && !done && index($0, field) && /: "[a-z_]+"/ { sub(/: "[a-z_]+"/, ": \"another\""); done = 1 }
		{ print }' "$cases" >"$work/spoilt.json"
	if cmp -s "$cases" "$work/spoilt.json"; then
		echo "$field: nothing was spoilt"
		exit 1
	fi
	expect 1 "$work/spoilt.json"
done
put '{"plan": {"split": [{"qo_lens": [1], "dense": {"split": 0, "mixed": false}, "sparse": {"split": 0, "mixed": false}}]}}'
expect 0 "$work/case.json"
put '{"plan": {"split": [{"qo_lens": [1], "dense": {"split": 0, "mixed": true}, "sparse": {"split": 0, "mixed": false}}]}}'
expect 1 "$work/case.json"
# Unknown kinds and fields, missing ones, other forms: none is skipped.
put '{"plan": {"splits": []}}'
expect 2 "$work/case.json"
put '{"another_kind": {}}'
expect 2 "$work/case.json"
put '{"plan": {"split": [{"qo_lens": [1], "dense": {"split": 0, "mixed": false}}]}}'
expect 2 "$work/case.json"
put '{"plan": {"split": [{"qo_lens": ["1"], "dense": {"split": 0, "mixed": false}, "sparse": {"split": 0, "mixed": false}}]}}'
expect 2 "$work/case.json"
put '{"plan": {"split": [{"qo_lens": [1], "more": 1, "dense": {"split": 0, "mixed": false}, "sparse": {"split": 0, "mixed": false}}]}}'
expect 2 "$work/case.json"
put '{"block_ids": {}}'
expect 2 "$work/case.json"
put '{"block_ids": {"case": 1}}'
expect 2 "$work/case.json"
put '{}'
expect 2 "$work/case.json"
put '[1'
expect 2 "$work/case.json"
expect 2 "$work/nothing_here"
expect 2

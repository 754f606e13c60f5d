#!/bin/sh
# Every line of bench_kernels runs once and says a number. Which number is not looked at.
set -u
bench=$1
out=$(mktemp)
trap 'rm -f "$out"' EXIT
bad=0
"$bench" --smoke --no-peers --json >"$out" || { echo "bench_kernels ended with $?"; exit 1; }
for name in mla_bf16_h128_b1 mla_bf16_h128_b8 mla_bf16_h16_b1 mla_bf16_h16_b8 mla_fp8_h16_b1 mla_fp8_h128_b1 msa_index_128k \
	msa_sparse msa_sparse_nhd gqa_dense gqa_dense_nhd write_mla write_nhd write_hnd; do
	grep -qE "\"name\": \"$name\", \"threads\": 1, \"value\": [0-9.]+, \"unit\": \"G(FLOP|B)/s\", \"limit\": [0-9.]+, \"ratio\": [0-9.]+" "$out" ||
		{ echo "$name: no line"; bad=1; }
done
KVPOOL_KERNELS=foo "$bench" --smoke >/dev/null 2>"$out"
[ $? -eq 2 ] && grep -q "KVPOOL_KERNELS is 'foo'.* set it to one of " "$out" || { echo "a level that is none:"; cat "$out"; bad=1; }
exit $bad

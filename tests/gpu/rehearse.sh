#!/bin/sh
# rehearse.sh BENCH_GPU: every line is there, in the form that bench_kernels has too, and none has a value: the double knows no time.
set -eu
"$1" --json | python3 -c '
import json, sys
lines = json.load(sys.stdin)
keys = {"name", "threads", "value", "unit", "limit", "ratio"}
for line in lines:
    assert set(line) == keys, line
    assert line["value"] is None and line["ratio"] is None, line
names = {line["name"] for line in lines}
assert len(names) == len(lines), "two lines of one name"
for name in ("read_4gib", "cublas_bf16_8192", "mla_bf16_h16_layer_major", "mla_bf16_h128_block_major", "msa_index_bf16_b32_64k",
             "msa_sparse_b32", "write_mla_bf16", "correct_lens_b128", "staging_b128_host", "mla_bf16_h16_flash_mla"):
    assert name in names, name
print(len(lines), "lines")
'

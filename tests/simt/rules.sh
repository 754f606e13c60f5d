#!/bin/sh
# rules.sh SOURCE_DIR: kernels keep to what both builds understand. Instructions, and what only nvcc knows, stand in ptx.h alone;
# host code launches nothing by itself.
set -u
cd "$1/kernels/cuda" || exit 1
bad=$(grep -nE '\basm\b|__(CUDA|sync|shfl|ballot|ldg|nano|shared__|constant__|global__|device__|launch)|<<<|cuda_[a-z0-9]+\.h' \
	$(ls ./*.cu ./*.h | grep -v '/ptx\.h$'))
[ -z "$bad" ] && exit 0
echo "$bad"
exit 1

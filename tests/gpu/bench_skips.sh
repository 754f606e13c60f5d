#!/bin/sh
# bench_skips.sh BENCH_GPU: without a device it ends with 77 and one sentence. Where there is a device there is nothing to see.
said=$(env -u LD_LIBRARY_PATH "$1" --only none 2>&1)
code=$?
[ $code = 0 ] && exit 0
echo "$said"
[ $code = 77 ] || exit 1
[ "$(echo "$said" | wc -l)" = 1 ] || exit 1
case $said in
"bench_gpu: skipped: no device: "*) exit 0 ;;
esac
exit 1

#!/bin/sh
# Exported symbols, the public headers and libkvpool(3) name the same functions.
set -u
source=$1 library=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

nm -D --defined-only "$library" | awk '$2 ~ /[TDBR]/ {sub(/@.*/, "", $3); print $3}' | grep -v '^KVPOOL_' | sort -u >"$dir/exported"
# A declaration's name is the word before its first parenthesis.
cat "$source"/include/kvpool/kvpool.h "$source"/include/kvpool/kernels.h "$source"/include/kvpool/prep.h | grep -v "^#" | tr '\n' ' ' |
	grep -oE '(KVP_API|KVK_API)[^(;]*\(' | sed 's/KVP_MUST_CHECK//' |
	grep -oE '[a-z_0-9]+\($' | tr -d '(' | sort -u >"$dir/declared"
grep -oE '\*kv[pk]_[a-z0-9_]+\*' "$source/man/libkvpool.3.scd" | tr -d '*' | sort -u >"$dir/paged"
grep '^kv[pk]_' "$dir/declared" >"$dir/declared.kvp"

bad=0
for pair in "exported declared" "declared.kvp paged"; do
	set -- $pair
	diff "$dir/$1" "$dir/$2" >"$dir/diff" || { echo "$1 (<) and $2 (>) differ:"; cat "$dir/diff"; bad=1; }
done
[ -s "$dir/exported" ] || { echo "no exported symbol found"; bad=1; }
exit $bad

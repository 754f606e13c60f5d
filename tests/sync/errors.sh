#!/bin/sh
# kvpool/error.h and the table of libkvpool(3) list the same errors with the same texts.
set -u
cd "$1" || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed -n 's/.*X(\(KVP_E[A-Z]*\), \([0-9]*\), "\(.*\)").*/\1 \2 \3/p' include/kvpool/error.h >"$dir/header"
# Rows of the page: "|  KVP_ENOBLOCKS" / ":  4097" / ":  text"
awk '/^[|[\]]+ *KVP_E/ {name = $2} /^: *[0-9]+$/ && name {number = $2}
     /^: *[a-z]/ && number {sub(/^: */, ""); print name, number, $0; name = number = ""}' man/libkvpool.3.scd >"$dir/page"
[ -s "$dir/header" ] || exit 1
diff "$dir/header" "$dir/page"

#!/bin/sh
# Manual pages are free of mandoc errors, and every page that another names exists.
set -u
source=$1 built=$2
command -v mandoc >/dev/null || { echo "no mandoc"; exit 77; }
bad=0
for page in "$built"/*.[1-8]; do
	mandoc -T lint -W error "$page" || bad=1
done
for name in $(sed 's/\\//g' "$source"/man/*.scd | grep -oE '\*?(lib)?kvp[a-z.]+\*?\([0-9]\)' | tr -d '*' | sort -u); do
	file=$(echo "$name" | sed 's/(\([0-9]\))/.\1/')
	[ -f "$built/$file" ] || { echo "$name is named, $file does not exist"; bad=1; }
done
exit $bad

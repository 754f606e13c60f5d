#!/bin/sh
# Every verb and option that the tools' own help names stands in its page, and the reverse; likewise configuration keys.
set -u
source=$1 ctl=$2 daemon=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bad=0
compare()
{
	[ -s "$dir/help" ] || { echo "$1: the help names nothing"; bad=1; }
	sort -u -o "$dir/help" "$dir/help"
	sort -u -o "$dir/page" "$dir/page"
	diff "$dir/help" "$dir/page" >"$dir/diff" || { echo "$1: help (<) and page (>) differ:"; cat "$dir/diff"; bad=1; }
}
# Long options of a text on standard input.
options()
{
	grep -oE -- '--[a-z][a-z-]*' | sort -u
}
# In scdoc a dash may be escaped.
page_options()
{
	sed 's/\\//g' "$1" | grep -oE -- '\*--[a-z][a-z-]*' | tr -d '*' | sort -u
}

"$daemon" --help | sed 's/as --key VALUE//' | options >"$dir/help"
page_options "$source/man/kvpoold.8.scd" >"$dir/page"
compare "kvpoold options"

{ "$ctl" --help; for verb in status pools clients blocks probe check flush replay trace; do "$ctl" $verb --help; done
  "$ctl" trace generate --help; } | options >"$dir/help"
page_options "$source/man/kvpoolctl.1.scd" >"$dir/page"
compare "kvpoolctl options"

# The help lists the keys of [daemon] as options, those of [pool NAME] as they are.
"$daemon" --help | awk '/^Keys of/ {keys = 1} keys && /^  (--)?[a-z][a-z_-]* / {sub(/^--/, "", $1); gsub(/-/, "_", $1); print $1}' \
	>"$dir/help"
awk '/^# / {keys = /KEYS/} keys && /^\*[a-z_]+\*$/ {gsub(/\*/, ""); print}' "$source/man/kvpoold.conf.5.scd" >"$dir/page"
compare "configuration keys"
exit $bad
